"""Check the installation, then train a model bare and profiled, and compare the bits."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import torch

from ...base.names import shorten, visible
from ...capture.marks.native import missing_extension
from ...errors import SessionError
from ...sinks import Config, parse_config
from .report import OK, PROBLEM, UNKNOWN, WARNING, Report, Result
from .subject import RETURNS, Subject
from .trial import STEPS, Outcome, Trials

_REPORT_IT: Final = "do not profile this model, and report it with `autoprof doctor --json`"


def examine(
    subject: Subject, config: Config | None = None, *, progress: Callable[[str], None] = lambda _step: None
) -> Report:
    """Check the installation and the subject, with a configuration or with every module as a target.

    ``progress`` is called with the name of each part. The subject's model is trained by a step. Raises
    ``AutoprofError`` if the configuration does not fit the model.
    """
    settings = parse_config("targets: [{match: '.*'}]") if config is None else config
    progress("checking the installation")
    return Report(subject.name, (check_installation(), *_compare(subject, settings, progress)))


def check_installation() -> Result:
    """Check that the extension fits these sources; ``pip check`` compares the packages with their ranges."""
    found = {"python": platform.python_version(), "torch": str(torch.__version__), "numpy": np.__version__}
    missing = missing_extension()
    if missing is not None:
        return Result("installation", PROBLEM, f"autoprof's extension in C {missing.reason}", missing.remedy, found)
    return Result("installation", OK, ", ".join(f"{name} {version}" for name, version in found.items()), data=found)


def _compare(subject: Subject, config: Config, progress: Callable[[str], None]) -> Iterator[Result]:
    """Train twice bare and once profiled, and check the bits and the hooks."""
    if not subject.runnable:
        yield Result("identity", UNKNOWN, "no batch to run a step with", f"return {RETURNS} from the factory")
        return
    progress("training without autoprof")
    trials = Trials(subject, config)
    bare = [trials.run_bare(), trials.run_bare()]
    failed = next((trial.error for trial in bare if trial.error is not None), None)
    if failed is not None:
        advice = "the step must run before it can be compared"
        yield Result("identity", UNKNOWN, f"a step without autoprof fails: {failed}", advice)
        return
    progress("training with autoprof")
    try:
        profiled = trials.run_profiled()
    except SessionError as error:
        yield Result("identity", UNKNOWN, f"no session opens here: {error}")
        return
    yield _check_identity(bare, profiled)
    if profiled.changed_hooks:
        names = _list(name or "the model" for name in profiled.changed_hooks)
        message = f"after close() the hooks of these modules differ: {names}"
        yield Result("leaves-nothing", PROBLEM, message, _REPORT_IT)
    else:
        yield Result("leaves-nothing", OK, "after close() every module has the same hooks as before")


def _check_identity(bare: list[Outcome], profiled: Outcome) -> Result:
    """Check that the profiled steps have the bits of the bare ones, where those agree with each other."""
    if profiled.error is not None:
        message = f"the step runs bare and fails under autoprof: {profiled.error}"
        return Result("identity", PROBLEM, message, _REPORT_IT)
    first, second = (trial.digests for trial in bare)
    keys = sorted({*first, *second, *profiled.digests})
    unstable = [key for key in keys if first.get(key) != second.get(key)]
    different = [key for key in keys if key not in unstable and first.get(key) != profiled.digests.get(key)]
    found = {"compared": len(keys), "unstable": unstable, "different": different}
    own = f"the model itself is not deterministic: {len(unstable)} of {len(keys)} differ between bare steps"
    advice = "use torch.use_deterministic_algorithms(True) or a fixed seed, and repeat"
    if unstable and all(key in unstable for key in keys if key.startswith("output")):
        return Result("identity", UNKNOWN, f"{own}, among them every output", advice, found)
    if different:
        message = f"{len(different)} of {len(keys)} tensors and states differ from the bare steps: {_list(different)}"
        return Result("identity", PROBLEM, message, _REPORT_IT, found)
    kind = "" if profiled.has_backward else " (no output requires a gradient: forward only)"
    if not unstable:
        message = f"{len(keys)} tensors and states of {STEPS} steps are equal to the last bit{kind}"
        return Result("identity", OK, message, data=found)
    message = f"{own} ({_list(unstable)}); all others are equal to the last bit{kind}"
    return Result("identity", WARNING, message, advice, found)


def _list(names: Iterable[str]) -> str:
    """List the first names and count the rest."""
    max_names = 6
    shown = [shorten(visible(name), 80) for name in names]
    rest = f" and {len(shown) - max_names} more" if len(shown) > max_names else ""
    return ", ".join(shown[:max_names]) + rest
