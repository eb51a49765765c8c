"""Set-up: everything that can be wrong is found here, before anything is attached."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from . import lifecycle
from .calibrate import measure_price
from .clocks import Clock, choose_clock
from .delivery import Delivery
from .diagnose import Diagnosis, Facts
from .errors import SessionError
from .memory import Footprint, Memory, SnapshotWindow, choose_memory
from .outputs import close_sinks, make_folder, make_run_sinks, world_size
from .price import Price
from .probes import (
    BackwardProbe,
    CopyProbe,
    Handle,
    Hooks,
    ModuleProbe,
    OptimizerHooks,
    OptimizerProbe,
    Placement,
    Reducer,
    ShapeProbe,
    find_anchor,
    hide_from_script,
    make_hooks,
    probe_collectives,
    probe_function,
    probe_loaders,
    probe_losses,
    probe_modes,
    probe_saving,
    probe_update,
    step_aside_for_compiler,
)
from .recorder import Recorder
from .sampling import Level, Probe, Sampling
from .session import Session
from .signals import OwnWork
from .span import Phase
from .stepping import Steps

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
    memory: Memory | None = None,
) -> Session:
    """Do what ``instrument`` does; with a ``clock`` of the caller's own, follow no device; read the bytes of ``memory``
    where there is one."""
    from .config import load_config  # pydantic is slow to import, and only needed here

    if not isinstance(model, nn.Module):
        raise SessionError(f"autoprof.instrument: model is a {type(model).__name__}; it must be an nn.Module")
    optimizers = _optimizers(optimizer)
    settings = load_config(config)
    if os.environ.get(SWITCH, "").strip().lower() in ("0", "off", "false", "no"):
        settings = settings.model_copy(update={"enabled": False})
    anchor = find_anchor(model)
    device = anchor.device if anchor is not None else torch.device("cpu")
    follow, notes = clock is None, []
    if clock is None:
        clock, note = choose_clock(device.type, device.index)
        notes += [note] if note else []
    recorder = Recorder(clock)
    if not settings.enabled:
        idle = Delivery(recorder, Price(), None, ())
        memory = memory or choose_memory(device)
        steps = Steps(model, settings, recorder, idle, clock=clock, memory=memory)
        return Session(steps, recorder, idle, memory, enabled=False)
    wiring = _Wiring(model, settings, device, clock, recorder, follow, memory)
    try:
        with OwnWork():
            return wiring.begin(notes, optimizers, sinks)
    except BaseException:
        with OwnWork():
            wiring.undo.remove()
        raise


class _Wiring:
    """One set-up in the making; ``undo`` takes back all that has been done so far."""

    def __init__(
        self,
        model: nn.Module,
        settings: Config,
        device: torch.device,
        clock: Clock,
        recorder: Recorder,
        follow: bool,
        memory: Memory | None,
    ) -> None:
        from .targets import select_targets

        self.undo = Handle()
        self._memory = memory
        self._model = model
        self._settings = settings
        self._device = device
        self._clock = clock
        self._recorder = recorder
        self._follow = follow
        # A clock of the caller's own moves as a test says: what our work takes cannot be read from it.
        self._budget = settings.sample.budget if follow else None
        self._price = measure_price(clock) if follow else Price()
        self._selection = select_targets(model, settings)
        self._modules = [target.module for target in self._selection.targets]

    def begin(self, notes: list[str], optimizers: tuple[Any, ...], sinks: Iterable[Sink]) -> Session:
        """Wire everything up, and attach it last."""
        undo, settings = self.undo, self._settings
        memory = choose_memory(self._device) if self._memory is None else self._memory
        undo.add(memory.close)
        functions = _probe_functions(settings, undo)
        folder = make_folder(settings, self._device, undo)
        footprint = Footprint(self._model, ((one.name, one.module) for one in self._selection.targets), optimizers)
        delivery = self._delivery(folder, notes)
        hooks = make_hooks(self._recorder)
        sampling, placement = self._sampling(hooks, memory, optimizers, footprint)
        steps = Steps(
            self._model,
            settings,
            self._recorder,
            delivery,
            clock=self._clock,
            memory=memory,
            sampling=sampling,
            optimizers=optimizers,
            placement=placement,
        )
        delivery.expected = sampling.expected
        session = Session(steps, self._recorder, delivery, memory)
        undo.add(lambda: lifecycle.release(session))
        lifecycle.claim(session, dict.fromkeys([self._model, *self._modules]))
        apart = Handle()
        undo.add(apart.remove)
        apart.add(hide_from_script().remove)
        apart.add(step_aside_for_compiler([self._model, *self._modules], delivery.compiled).remove)
        sampling.around += self._probe_step(steps, hooks, optimizers, apart)
        delivery.outside = lambda: {
            "paired": sampling.paired(),
            "apart": steps.course.spent(),
            "loader": steps.fetches.prefetch(),
        }
        delivery.footprint, delivery.diagnosis = footprint, self._diagnosis(memory, footprint)
        delivery.memory = memory
        self._snapshots(folder, delivery, steps, apart)
        session.targets = self._selection.targets
        if settings.deep is not None and folder is not None:
            from .deep import capture_steps

            capture_steps(settings.deep, folder, session.targets, steps, delivery, apart)
        made = make_run_sinks(settings, folder, session.summary, delivery.clock_limit_ns)
        undo.add(lambda: close_sinks(made, session.summary()))
        undo.add(session.abandon)
        session.start([*made, *sinks], [functions, apart])
        return session

    def _sampling(
        self, hooks: Hooks, memory: Memory, optimizers: tuple[Any, ...], footprint: Footprint
    ) -> tuple[Sampling, Placement]:
        from .targets import levels_of_detail

        sample, recorder = self._settings.sample, self._recorder
        details = levels_of_detail(self._model, self._selection)
        every = {target.fqn: target for detail in details for target in detail.targets}
        modules = {fqn: ModuleProbe(recorder, hooks, target, memory) for fqn, target in every.items()}
        placement = Placement(self._model, recorder, hooks, [*modules.values()], follow_kind=self._follow)
        probes: dict[str, list[Probe]] = {fqn: [probe] for fqn, probe in modules.items()}
        for fqn, target in every.items():
            if target.shapes:
                probes[fqn].append(ShapeProbe(recorder, target))
        levels = [
            Level(
                [probe for target in detail.targets for probe in probes[target.fqn]],
                detail.words,
                frozenset(target.fqn for target in detail.targets),
            )
            for detail in details
        ]
        sampling = Sampling(recorder, levels, every=sample.every, budget=self._budget, price=self._price)
        code = recorder.label("Optimizer", None, Phase.OPTIMIZER)
        sampling.around += [
            OptimizerProbe(recorder, code, optimizers),
            OptimizerHooks(optimizers, after=footprint.stepped),
        ]
        if any(Phase.BACKWARD in target.phases for target in self._selection.targets):
            sampling.around.append(BackwardProbe(hooks.passes))
        return sampling, placement

    def _probe_step(self, steps: Steps, hooks: Hooks, optimizers: tuple[Any, ...], handle: Handle) -> list[Probe]:
        """Attach what sees the step beside the model; return what is to be told only while the session records."""
        probe_loaders(steps.fetches, handle)
        probe_saving(self._recorder, steps.course.apart, handle)
        probe_modes(self._model, steps.course.switched, handle)
        hooks.passes.reducer = Reducer(self._recorder, self._model)
        steps.course.trained.append(hooks.passes.reducer.forward)
        return [
            probe_update(self._recorder, optimizers, handle),
            CopyProbe(self._recorder, handle),
            probe_collectives(self._recorder, handle),
            probe_losses(self._recorder, hooks, self._model, handle),
        ]

    def _snapshots(self, folder: RunFolder | None, delivery: Delivery, steps: Steps, undo: Handle) -> None:
        wanted = self._settings.memory_snapshot
        if wanted is None or folder is None:
            return
        window = SnapshotWindow(wanted, folder.rank_path, folder.rank, delivery.say)
        undo.add(window.close)
        steps.on_begin(window.step_begins)
        if wanted.first is not None:
            steps.sampling.reserve(wanted.first, wanted.window + 1)
        window.begin()

    def _diagnosis(self, memory: Memory, footprint: Footprint) -> Diagnosis:
        facts = Facts(
            budget=self._settings.sample.budget,
            memory_capacity_bytes=memory.capacity_bytes(),
            world_size=world_size(),
        )
        return Diagnosis(facts, footprint.optimizers)

    def _delivery(self, folder: RunFolder | None, notes: list[str]) -> Delivery:
        from .targets import foresee

        delivery = Delivery(self._recorder, self._price, folder, [*self._selection.notes, *notes])
        delivery.calibrate(self._clock)
        unseen = (one.fqn for one in foresee(self._model, self._modules) if one.seen is False)
        delivery.hidden.update(unseen)
        return delivery


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
