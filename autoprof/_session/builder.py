"""Set-up: everything that can be wrong is found here, before anything is attached."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .._capture.calibration import measure_price
from .._capture.handle import Handle
from .._capture.mark_cost import MarkCost
from .._capture.memory import Footprint
from .._capture.probes import (
    find_anchor,
    hide_hooks,
    make_hooks,
    make_recorder,
    probe_function,
)
from .._capture.recorder import Recorder
from .._metrics import RootProbe
from .._process.signals import DeferSigint
from ..devices import Clock, Memory, device_of
from ..diagnose import CallMonitor, Diagnosis, Environment, RankMonitor, RunFacts
from ..errors import SessionError
from ..probes import StepProbes
from ..probes.compilations import CompilationProbe
from ..probes.loaders import LoaderProbe
from ..probes.log_calls import LogProbe
from ..probes.sync_calls import SyncProbe
from . import lifecycle
from .outputs import close_sinks, make_folder, make_run_sinks, world_size
from .pipeline import Pipeline
from .probe_setup import Setup, make_metrics, make_sampling, make_step_probes, open_snapshots
from .session import Session
from .step_tracker import StepTracker

if TYPE_CHECKING:
    from .._storage.runs import RunFolder
    from ..config import Config
    from ..sinks import Sink

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
    those that the configuration names. Raises ``ConfigError``, ``TargetError``, ``SessionError``, ``OutputError`` or
    ``MissingExtra``; then nothing is attached and nothing is left behind.
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
    from ..config import load_config  # pydantic is slow to import, and only needed here

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
        clock, note = device_of(device).clock(device)
        notes += [note] if note else []
    recorder = make_recorder(clock, settings.ranges if settings.enabled else "off")
    if not settings.enabled:
        idle = Pipeline(recorder, MarkCost(), None, ())
        memory = memory or device_of(device).memory(device)
        steps = StepTracker(model, settings, recorder, idle, clock=clock, memory=memory)
        return Session(steps, recorder, idle, memory, LoaderProbe(recorder, steps.state), enabled=False)
    wiring = _Wiring(model, settings, device, clock, recorder, follow, memory)
    try:
        with DeferSigint():
            return wiring.begin(notes, optimizers, sinks)
    except BaseException:
        with DeferSigint():
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
        from .._targets import select_targets

        self.undo = Handle()
        self._memory = memory
        self._model = model
        self._settings = settings
        self._device = device
        self._clock = clock
        self._recorder = recorder
        self._follow = follow
        self._price = measure_price(clock) if follow else MarkCost()
        self._selection = select_targets(model, settings)
        self._modules = [target.module for target in self._selection.targets]

    def begin(self, notes: list[str], optimizers: tuple[Any, ...], sinks: Iterable[Sink]) -> Session:
        """Wire everything up, and attach it last."""
        undo, settings = self.undo, self._settings
        memory = device_of(self._device).memory(self._device) if self._memory is None else self._memory
        undo.add(memory.close)
        functions = _probe_functions(settings, undo)
        folder = make_folder(settings, self._device, undo)
        footprint = Footprint(self._model, ((one.name, one.module) for one in self._selection.targets), optimizers)
        pipeline = self._pipeline(folder, notes)
        hooks = make_hooks(self._recorder)
        setup = self._setup(memory, optimizers)
        sampling, placement = make_sampling(setup, hooks, footprint)
        root = RootProbe(self._model, self._recorder, followed=setup.follows_backward)
        sampling.step_probes.append(root)
        pipeline.metrics = make_metrics(setup, root, pipeline.say)
        undo.add(pipeline.metrics.close)
        steps = StepTracker(
            self._model,
            settings,
            self._recorder,
            pipeline,
            clock=self._clock,
            memory=memory,
            sampling=sampling,
            optimizers=optimizers,
            placement=placement,
        )
        pipeline.expected = sampling.expected
        step_probes = make_step_probes(setup, hooks, steps)
        session = Session(steps, self._recorder, pipeline, memory, step_probes.find(LoaderProbe))
        undo.add(lambda: lifecycle.release(session))
        lifecycle.claim(session, dict.fromkeys([self._model, *self._modules]))
        apart = Handle()
        undo.add(apart.remove)
        apart.add(hide_hooks([self._model, *self._modules], pipeline.compiled).remove)
        apart.add(step_probes.remove)
        for probe in step_probes.always:
            probe.attach()
        sampling.step_probes += step_probes.sampled
        pipeline.outside = lambda: {
            "paired": sampling.paired(),
            "excluded": steps.state.spent(),
            "loader": step_probes.find(LoaderProbe).prefetch(),
        }
        pipeline.footprint, pipeline.memory = footprint, memory
        pipeline.diagnosis = self._diagnosis(setup, folder, footprint, step_probes)
        open_snapshots(setup, folder, steps, pipeline.say, apart)
        session.targets = self._selection.targets
        _open_captures(setup, folder, steps, pipeline, apart)
        made = make_run_sinks(settings, folder, session.summary, pipeline.refined, pipeline.clock_limit_ns)
        undo.add(lambda: close_sinks(made, session.summary()))
        undo.add(session.abandon)
        session.start([*made, *sinks], [functions, apart])
        return session

    def _setup(self, memory: Memory, optimizers: tuple[Any, ...]) -> Setup:
        return Setup(
            self._model,
            self._settings,
            self._selection,
            optimizers,
            self._device,
            self._recorder,
            memory,
            self._price,
            self._follow,
        )

    def _diagnosis(
        self, setup: Setup, folder: RunFolder | None, footprint: Footprint, step_probes: StepProbes
    ) -> Diagnosis:
        """Make the diagnosis, with the probes whose tables the rules read."""
        find = step_probes.find
        calls = CallMonitor(find(SyncProbe), find(LogProbe), find(CompilationProbe))
        ranks = RankMonitor(None if folder is None else folder.path, 0 if folder is None else folder.rank, world_size())
        facts = self._facts(setup.memory, folder)
        return Diagnosis(facts, footprint.optimizers, calls, ranks)

    def _facts(self, memory: Memory, folder: RunFolder | None) -> RunFacts:
        return RunFacts(
            budget=self._settings.sample.budget,
            memory_capacity_bytes=memory.capacity_bytes(),
            world_size=world_size(),
            rank=0 if folder is None else folder.rank,
            environment=Environment.read(self._device.type, os.environ),
        )

    def _pipeline(self, folder: RunFolder | None, notes: list[str]) -> Pipeline:
        from .._targets import predict_coverage

        pipeline = Pipeline(self._recorder, self._price, folder, [*self._selection.notes, *notes])
        pipeline.calibrate(self._clock)
        unseen = (one.fqn for one in predict_coverage(self._model, self._modules) if one.seen is False)
        pipeline.hidden.update(unseen)
        return pipeline


def _open_captures(
    setup: Setup, folder: RunFolder | None, steps: StepTracker, pipeline: Pipeline, undo: Handle
) -> None:
    wanted = setup.settings.deep
    if wanted is not None and folder is not None:
        from ..deep import capture_steps  # slow to import, and seldom asked for

        capture_steps(wanted, folder, setup.selection.targets, steps, pipeline, undo)


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
