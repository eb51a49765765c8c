"""Set-up: everything that can be wrong is found here, before anything is attached."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from . import lifecycle
from .calibrate import measure_price
from .clocks import Clock, choose_clock
from .delivery import Delivery
from .errors import SessionError
from .memory import choose_memory
from .price import Price
from .probes import Handle, ModuleProbe, make_hooks, probe_function, probe_optimizers
from .recorder import Recorder
from .session import Session
from .span import Phase

if TYPE_CHECKING:
    from .config import Config
    from .runs import RunFolder
    from .sinks import Sink

SWITCH = "AUTOPROF"
"""The environment's switch: ``AUTOPROF=0`` makes every session inert, whatever the configuration says."""


def instrument(
    model: nn.Module,
    config: str | os.PathLike[str] | Mapping[str, Any] | Config | None = None,
    *,
    optimizer: Any = None,
    sinks: Iterable[Sink] = (),
) -> Session:
    """Attach autoprof to a model and open its first step.

    ``config`` is a path, a mapping, a ``Config``, or None (every direct child of the model, all phases).
    ``optimizer`` is one or several; without it the steps of every torch optimizer count. ``sinks`` are added to
    those that the configuration names. Raises ``ConfigError``, ``TargetError``, ``SessionError`` or
    ``OutputError``; then nothing is attached and nothing is left behind.
    """
    return open_session(model, config, optimizer=optimizer, sinks=sinks)


def open_session(
    model: nn.Module,
    config: str | os.PathLike[str] | Mapping[str, Any] | Config | None,
    *,
    optimizer: Any,
    sinks: Iterable[Sink],
    clock: Clock | None = None,
) -> Session:
    """Do what ``instrument`` does; with a ``clock`` of the caller's own, follow no device."""
    from .config import load_config  # pydantic is slow to import, and only needed here
    from .targets import select_targets

    if not isinstance(model, nn.Module):
        raise SessionError(f"autoprof.instrument: model is a {type(model).__name__}; it must be an nn.Module")
    optimizers = _optimizers(optimizer)
    settings = load_config(config)
    if os.environ.get(SWITCH, "").strip().lower() in ("0", "off", "false", "no"):
        settings = settings.model_copy(update={"enabled": False})
    anchor = next(model.parameters(), None)
    device = anchor.device if anchor is not None else torch.device("cpu")
    note, follow = None, clock is None
    if clock is None:
        clock, note = choose_clock(device.type)
    recorder = Recorder(clock)
    if not settings.enabled:
        idle = Delivery(recorder, Price(), None, None, ())
        return Session(model, settings, recorder, idle, clock=clock, memory=choose_memory(device))
    selection = select_targets(model, settings)
    undo = Handle()
    try:
        memory = choose_memory(device)
        undo.add(memory.close)
        hooks = make_hooks(recorder)
        functions = _probe_functions(settings, undo)
        folder = _make_folder(settings, device, undo)
        price = measure_price(clock) if follow else Price()
        notes = [*selection.notes, *([note] if note else [])]
        session = Session(
            model,
            settings,
            recorder,
            Delivery(recorder, price, folder, settings.sample.budget, notes),
            clock=clock,
            memory=memory,
            probes=[ModuleProbe(recorder, hooks, target, memory) for target in selection.targets],
            follow_device=follow,
        )
        lifecycle.claim(session, {model: None, **{target.module: None for target in selection.targets}})
        undo.add(lambda: lifecycle.release(session))
        code = recorder.label("Optimizer", None, Phase.OPTIMIZER)
        steps = probe_optimizers(recorder, code, session.optimizer_stepped, optimizers)
        undo.add(steps.remove)
        session.start([*_make_sinks(settings, folder, session), *sinks], [functions, steps])
    except BaseException:
        undo.remove()
        raise
    return session


def _optimizers(given: Any) -> tuple[Any, ...]:
    optimizers = () if given is None else tuple(given) if isinstance(given, (list, tuple)) else (given,)
    for one in optimizers:
        if not hasattr(one, "register_step_post_hook"):
            raise SessionError(
                f"autoprof.instrument: optimizer is a {type(one).__name__}; "
                "it must be a torch.optim.Optimizer, or a list of them"
            )
    return optimizers


def _probe_functions(settings: Config, undo: Handle) -> Handle:
    handle = Handle()
    undo.add(handle.remove)
    for i, rule in enumerate(settings.functions):
        where = settings.source.place(f"functions[{i}].path")
        handle.add(probe_function(rule.path, rule.label, where).remove)
    return handle


def _make_folder(settings: Config, device: torch.device, undo: Handle) -> RunFolder | None:
    wanted = settings.sinks
    if wanted.log is None and wanted.jsonl is None and wanted.memory_plot is None:
        return None
    from .runs import RunFolder

    rank, world_size = _rank()
    folder = RunFolder.create(
        settings.output,
        rank=rank,
        world_size=world_size,
        name=_shared_name() if world_size > 1 else None,
        config=settings.model_dump(mode="json"),
        devices=[torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)],
    )
    undo.add(folder.discard)
    return folder


def _rank() -> tuple[int, int]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    try:
        return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    except ValueError:
        return 0, 1


def _shared_name() -> str:
    """Name the run alike on all ranks of this host, without a word between them: they have one parent, the launcher."""
    parent = os.getppid()
    try:
        started = os.stat(f"/proc/{parent}").st_mtime
    except OSError:
        return f"launch-{parent}"
    return f"{datetime.fromtimestamp(started):%Y-%m-%d_%H-%M-%S}-{parent}"


def _make_sinks(settings: Config, folder: RunFolder | None, session: Session) -> tuple[Sink, ...]:
    if all(options is None for _, options in settings.sinks):
        return ()
    from .sinks import RunInfo, make_sinks

    rank, _ = _rank()
    return make_sinks(settings.sinks, RunInfo(folder=folder, rank=rank, summary=session.summary, stream=sys.stdout))
