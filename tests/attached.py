"""What autoprof has in the process: hooks of modules, open sessions, their observers."""

import gc
from typing import Any

from torch import nn
from torch.optim import optimizer as torch_optimizer

from autoprof.base.process import lifecycle
from autoprof.capture.hooks.call_sites import table
from autoprof.capture.hooks.module import ModuleProbe
from autoprof.diagnose import Diagnosis


def hooks_of(module: nn.Module) -> dict[str, list[Any]]:
    """Return every hook of one module, by where torch keeps it, and what autoprof calls around its calls.

    Entries of an open session that are idle, in an unsampled step or a pause, are left out: nothing is called for them.
    """
    hooks = {
        name: list(value.items())
        for name, value in vars(module).items()
        if name.endswith("_hooks") and isinstance(value, dict)  # modules of torch.fx have lists of other hooks
    }
    site = table.find(module) if isinstance(module, nn.Module) else None
    entries = [] if site is None else [entry for entry in site.entries if not _is_idle(entry)]
    return {**hooks, "marks": [*entries, *([] if site is None else site.before)]}


def _is_idle(entry: Any) -> bool:
    owners = [one for one in gc.get_referents(entry) if isinstance(one, ModuleProbe)]
    return bool(open_sessions()) and any(one.idles and one.recorder.buffer.idle for one in owners)


def is_marked(module: Any) -> bool:
    """Return whether the module has a hook, or its calls are marked."""
    return any(hooks_of(module).values())


def open_sessions() -> list[Any]:
    """Return the sessions that are open; none of them is left without its models."""
    sessions = list(lifecycle._open)
    assert sessions or not len(lifecycle._owners), "a model is still owned by a session"
    return sessions


def diagnosis_of(session: Any) -> Diagnosis:
    """Return the diagnosis among the observers of a session."""
    (found,) = (one for one in session._pipeline._observers if isinstance(one, Diagnosis))
    return found


def optimizer_hooks() -> list[Any]:
    """Return the hooks on the steps of all optimizers: those before a step, then those after it."""
    tables = torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks
    return [hook for table in tables for hook in table.values()]
