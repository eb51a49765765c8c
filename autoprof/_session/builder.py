"""``instrument``: check the arguments, and build a session complete, in the order of the pipeline."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, TextIO

import torch
from torch import nn

from .._capture.calibration import measure_mark_cost
from .._capture.compiler import around_compiler
from .._capture.handle import Handle, Probe
from .._capture.hooks.call_sites import keep_calls
from .._capture.hooks.checkpointing import SEES_CHECKPOINTS
from .._capture.hooks.compiled_calls import CompiledCalls
from .._capture.hooks.function import probe_function
from .._capture.hooks.module_hooks import make_hooks
from .._capture.hooks.optimizer_hooks import ModelOptimizers, OptimizerHooks
from .._capture.hooks.placement import find_anchor
from .._capture.mark_cost import MarkCost
from .._capture.memory import Footprint
from .._capture.recorder import Recorder
from .._core.notes import Notes
from .._core.signals import DeferSignals
from .._metrics import CommMeter, RootProbe
from .._process import lifecycle
from .._process.gc_paused import GcPaused
from .._process.ranks import can_have_group, launch_name, rank, world_size
from .._process.switch import is_off
from .._ranks import Exchange, RankMonitor
from .._resolve.observer import Observer
from .._storage.runs import RunFolder
from .._targets import find_unseen, group_tree, select_targets, unwrap, walk
from ..devices import Clock, Memory, device_of
from ..diagnose import CallMonitor, Diagnosis, Environment, RunFacts, StackMonitor, ThreadMonitor
from ..errors import SessionError
from ..probes import FetchedBatches, Prefetch, ProbeContext, StepProbes, optimizers_in
from ..probes.collectives import CommProbe
from ..probes.compilations import CompilationProbe
from ..probes.debug_modes import DebugProbe
from ..probes.loaders import LoaderProbe
from ..probes.log_calls import LogProbe
from ..probes.stacks import StackProbe
from ..probes.sync_calls import SyncProbe
from ..sinks import Config, Sink, close_unused, load_config, open_sinks, writes_files
from .host_times import HOST
from .late_ranks import LateRanks
from .module_sources import ModuleSources
from .observers import CompiledModules, ExcludedTime, MemoryTable
from .pipeline import Pipeline
from .probe_setup import (
    ModuleProbes,
    Setup,
    make_metrics,
    make_rows,
    memory_names,
)
from .rank_exchange import RankExchange, make_exchange
from .sampler import Sampler
from .sampling import Sampling
from .session import OpenSession, Session
from .session_cost import SessionCost
from .step_detector import MAX_ENTRIES, StepDetector
from .step_recorder import StepRecorder
from .targets_file import TargetsFile
from .training_hooks import TrainingHooks
from .training_steps import StepListener, TrainingSteps
from .uncalled import UncalledModules
from .zoom import Zoom

if TYPE_CHECKING:
    from .._flight import FlightRecorder

UNSEEN_CHECKPOINTS = (
    "this version of torch has another torch.utils.checkpoint than autoprof knows: recompute is timed only in targets"
)
INSTRUMENTED_AGAIN = "the session that was open on this model was closed, because the model was instrumented again"


def instrument(
    model: nn.Module,
    config: str | os.PathLike[str] | Mapping[str, Any] | Config | None = None,
    *,
    optimizer: Any = None,
    sinks: Iterable[Sink] = (),
) -> Session:
    """Attach autoprof to a model and open its first step.

    ``config`` is a path, a mapping, a ``Config``, or None. Without ``targets`` the modules that take most of a step are
    found during the run, all phases.
    ``optimizer`` is one or several, wrapped or not; without it every torch optimizer counts. ``sinks`` are added to
    those that the configuration names. Raises ``ConfigError``, ``TargetError``, ``SessionError``, ``OutputError`` or
    ``MissingExtra``; then nothing is attached and no file is kept.
    """
    lifecycle.prefer_program()
    return open_session(model, config, optimizer=optimizer, sinks=sinks)


@dataclass(frozen=True, slots=True)
class FoundTraining:
    """The facts of a training that ``autoprof run`` found, beside its model."""

    run_name: str | None = None
    """The folder below ``output``; None for the name that all ranks of a launcher give it, or a new one."""
    stream: TextIO | None = None
    """The stream for people; None for the standard output."""
    optimizers: int = 0
    """The number of optimizers that step in turn; 0 where it is unknown."""
    called: tuple[nn.Module, ...] = ()
    """The modules that the program calls in place of the model, as far as they are known."""


def open_session(
    model: nn.Module,
    config: str | os.PathLike[str] | Mapping[str, Any] | Config | None,
    *,
    optimizer: Any,
    sinks: Iterable[Sink],
    clock: Clock | None = None,
    memory: Memory | None = None,
    found: FoundTraining = FoundTraining(),
) -> Session:
    """Open a session as ``instrument`` does, but with a given clock, which follows no device, memory or training."""
    cost = SessionCost()
    if not isinstance(model, nn.Module):
        raise SessionError(f"autoprof.instrument: model is a {type(model).__name__}; it must be an nn.Module")
    optimizers = optimizers_in(optimizer)
    settings = load_config(config)
    if not settings.enabled or is_off(os.environ):
        return Session()
    undo = Handle()
    try:
        with DeferSignals(), GcPaused():
            return _Builder(model, settings, optimizers, clock, memory, undo, found, cost).build(sinks)
    except BaseException:
        with DeferSignals():
            undo.remove()
        raise


@dataclass(frozen=True, slots=True)
class _Capture:
    """The parts that record a step."""

    footprint: Footprint
    root: RootProbe
    module_probes: ModuleProbes
    context: ProbeContext
    probes: StepProbes
    step_probes: Sequence[Probe]


class _Builder:
    """Build one session. ``undo`` undoes a set-up that fails; the session takes over ``_attached`` at the end."""

    def __init__(
        self,
        model: nn.Module,
        settings: Config,
        optimizers: tuple[Any, ...],
        clock: Clock | None,
        memory: Memory | None,
        undo: Handle,
        found: FoundTraining,
        cost: SessionCost,
    ) -> None:
        anchor = find_anchor(model)
        place = anchor.device if anchor is not None else torch.device("cpu")
        device = device_of(place)
        follow, note = clock is None, None
        if clock is None:
            clock, note = device.clock(place)
        recorder = Recorder(clock)
        mark_cost = measure_mark_cost(clock) if follow else MarkCost()
        selection = select_targets(model, settings)
        tree = None if settings.targets else group_tree(model)
        unseen = [] if SEES_CHECKPOINTS else [UNSEEN_CHECKPOINTS]
        self._notes = Notes([*selection.notes, *([note] if note else []), *unseen])
        self._clock = clock
        self._undo = undo
        self._found = found
        self._attached = Handle()
        self._cost = cost
        memory = device.memory(place) if memory is None else memory
        undo.add(memory.close)
        undo.add(self._attached.remove)
        self._setup = Setup(
            model,
            settings,
            selection,
            tree,
            ModelOptimizers(model, optimizers),
            device,
            place,
            recorder,
            memory,
            mark_cost,
            follow,
            settings.sample.budget,
        )
        self._modules = list(dict.fromkeys([model, *(target.module for target in self._setup.named)]))
        if lifecycle.end_owners(self._modules):
            self._notes.warn_once(INSTRUMENTED_AGAIN)

    def build(self, sinks: Iterable[Sink]) -> Session:
        """Build every part complete, each from those before it, and open the first step last."""
        setup, undo, attached = self._setup, self._undo, self._attached
        prefetch, batches = Prefetch(), FetchedBatches()
        capture = self._capture(prefetch, batches)
        sampler = Sampler(setup.marks_budget, setup.settings.sample.every)
        exchange = make_exchange(sampler)
        excluded = ExcludedTime(prefetch)
        folder = self._make_folder()
        metrics = make_metrics(setup, capture.root, batches, self._notes)
        undo.add(metrics.close)
        comm = capture.probes.find(CommProbe)
        observers: list[Observer] = [
            metrics,  # first: it adds to the scalars of the steps
            MemoryTable(capture.footprint),
            excluded,
            CommMeter(comm.record, self._notes),
            diagnosis := self._diagnosis(folder, capture, exchange),
            *([] if folder is None else [ModuleSources(setup.model, folder)]),
            compiled := self._compiled_modules(),
            UncalledModules(setup.model, compiled, self._notes),
            self._cost,
        ]
        if exchange is not None:
            observers.append(RankExchange(exchange, sampler, shows=rank() == 0))
            undo.add(exchange.finish)
        if sampler.active:
            observers.append(sampler)
        rows = sampler.rows = make_rows(setup, capture.module_probes)
        if sampler.active or isinstance(rows, Zoom):
            observers.append(rows)
        if isinstance(rows, Zoom) and folder is not None and folder.rank == 0:
            observers.append(TargetsFile(folder.path, setup.model, rows))
        made = open_sinks(setup.settings, folder, self._found.stream, setup.budget, self._notes.warn_once)
        undo.add(partial(close_unused, made))
        pipeline = Pipeline(
            setup.recorder,
            self._clock,
            setup.mark_cost,
            observers=observers,
            sinks=[*made, *sinks],
            folder=folder,
            notes=self._notes,
            times=HOST,
            pass_share=setup.pass_share,
            spend=sampler.spend_on_rows,
        )
        sampling = Sampling(setup.recorder, sampler, rows, capture.step_probes, mark_cost=setup.mark_cost, times=HOST)
        flight = self._flight_recorder(folder)
        windows = self._windows(folder, sampling, pipeline, flight)
        if exchange is None and can_have_group():
            windows.append(LateRanks(sampler, diagnosis, pipeline, folder, made, self._notes).step_begins)
        steps = self._steps(capture, sampling, pipeline, excluded, windows, flight)
        hooks = self._hooks(capture, steps)
        reporting = StepProbes(replace(capture.context, events=hooks))
        attached.add(reporting.remove)
        session = OpenSession(
            pipeline,
            sampling,
            steps,
            hooks,
            reporting.find(LoaderProbe),
            metrics,
            recorder=setup.recorder,
            memory=setup.memory,
            notes=self._notes,
            folder=folder,
            cost=self._cost,
        )
        self._begin(session, capture, reporting)
        if exchange is not None:
            exchange.start()
        return session

    def _begin(self, session: OpenSession, capture: _Capture, reporting: StepProbes) -> None:
        """Claim the modules, attach the probes that stay, and open the first step."""
        self._undo.add(partial(lifecycle.release, session))
        lifecycle.claim(session, self._modules)
        for probe in (*capture.probes.always, *reporting.always):
            probe.attach()
        self._undo.add(session.abandon)
        session.start(self._attached)
        if self._setup.follow:
            self._cost.opened()

    def _capture(self, prefetch: Prefetch, batches: FetchedBatches) -> _Capture:
        """Make the parts that write marks; nothing but functions is attached yet."""
        setup = self._setup
        recorder = setup.recorder
        self._probe_functions()
        footprint = Footprint(setup.model, memory_names(setup))
        hooks = make_hooks(recorder)
        root = RootProbe(setup.model, recorder, hooks.passes if setup.follows_backward else None)
        module_probes = ModuleProbes(setup, hooks)
        self._attached.add(module_probes.remove)
        self._attached.add(root.remove)
        context = ProbeContext(
            setup.model,
            setup.optimizers,
            setup.settings,
            recorder,
            hooks,
            setup.follows_backward,
            training_forward_calls=[],
            prefetch=prefetch,
            batches=batches,
            real_time=setup.follow,
        )
        probes = StepProbes(context)
        self._attached.add(probes.remove)
        step_probes: list[Probe] = [OptimizerHooks(after=footprint.stepped), root, *probes.sampled]
        return _Capture(footprint, root, module_probes, context, probes, step_probes)

    def _compiled_modules(self) -> CompiledModules:
        compiled = CompiledModules(self._setup.recorder, self._unseen(), self._notes)
        self._attached.add(keep_calls().remove)
        self._attached.add(around_compiler(_nothing, compiled.compiled).remove)
        nodes = walk(self._setup.model)
        calls = CompiledCalls([(node.inner, node.module) for node in nodes], unwrap, compiled.found)
        self._attached.add(calls.close)
        calls.begin()
        return compiled

    def _steps(
        self,
        capture: _Capture,
        sampling: Sampling,
        pipeline: Pipeline,
        excluded: ExcludedTime,
        listeners: Sequence[StepListener],
        flight: FlightRecorder | None,
    ) -> TrainingSteps:
        setup, find = self._setup, capture.probes.find
        stacks = find(StackProbe)
        meters = (setup.memory, capture.footprint, capture.root, stacks, find(CommProbe), find(SyncProbe))
        detector = StepDetector(
            auto=setup.settings.step == "auto",
            thread=get_ident(),
            optimizers=setup.optimizers.given or self._found.optimizers,
            entries=("", *self._called()),
        )
        return TrainingSteps(
            detector,
            StepRecorder(
                setup.recorder,
                self._clock,
                setup.memory,
                self._notes,
                placement=capture.module_probes.placement,
                cost_meters=meters,
                times=HOST,
            ),
            sampling,
            pipeline,
            excluded,
            setup.recorder,
            self._notes,
            warmup=setup.settings.sample.warmup,
            listeners=listeners,
            pause_listeners=(stacks.exclude,) if flight is None else (stacks.exclude, flight.ring.pause),
            flight=flight,
            times=HOST,
        )

    def _called(self) -> dict[str, nn.Module]:
        """Return the modules that the program calls in place of the model, by fqn, as far as they are known."""
        if not self._found.called:
            return {}
        fqns = {id(module): node.fqn for node in walk(self._setup.model) for module in (node.module, node.inner)}
        called = {fqns.get(id(module), f"another {at}"): module for at, module in enumerate(self._found.called)}
        return dict(list(called.items())[: MAX_ENTRIES - 1])

    def _hooks(self, capture: _Capture, steps: TrainingSteps) -> TrainingHooks:
        setup = self._setup
        return TrainingHooks(
            setup.model,
            setup.optimizers,
            steps,
            setup.recorder,
            called=tuple(self._called().values()),
            training_forward_calls=capture.context.training_forward_calls,
            times=HOST,
        )

    def _probe_functions(self) -> None:
        settings = self._setup.settings
        for i, rule in enumerate(settings.functions):
            where = settings.source.place(f"functions[{i}].path")
            self._attached.add(probe_function(rule.path, rule.label, where).remove)

    def _make_folder(self) -> RunFolder | None:
        """Make the folder that this run's sinks write to; None where none of them writes files."""
        settings, setup = self._setup.settings, self._setup
        if not writes_files(settings.sinks) and settings.memory_snapshot is None and settings.deep is None:
            return None
        folder = RunFolder.create(
            settings.output,
            rank=rank(),
            world_size=world_size(),
            name=self._found.run_name or (launch_name() if world_size() > 1 else None),
            numbered=True,
            config=settings.model_dump(mode="json"),
            devices=[setup.device.name(setup.place)],
        )
        self._undo.add(folder.discard)
        return folder

    def _diagnosis(self, folder: RunFolder | None, capture: _Capture, exchange: Exchange | None) -> Diagnosis:
        setup, number = self._setup, rank()
        facts = RunFacts(
            budget=setup.budget,
            memory_capacity_bytes=setup.memory.capacity_bytes(),
            world_size=world_size(),
            rank=number,
            leaf_modules=sum(not module._modules for module in setup.model.modules()),
            environment=Environment.read(setup.place.type, os.environ),
        )
        ranks = RankMonitor(None if folder is None else folder.path, number, world_size(), exchange)
        find = capture.probes.find
        calls = CallMonitor(find(SyncProbe), find(LogProbe), find(CompilationProbe), find(DebugProbe))
        return Diagnosis(facts, capture.footprint, calls, ranks, StackMonitor(find(StackProbe)), ThreadMonitor())

    def _unseen(self) -> list[str]:
        """Return the fqns of targets whose hooks never fire; a note names them already."""
        targets = [target.module for target in self._setup.selection]
        return find_unseen(self._setup.model, targets)

    def _windows(
        self, folder: RunFolder | None, sampling: Sampling, pipeline: Pipeline, flight: FlightRecorder | None
    ) -> list[StepListener]:
        """Open the windows of steps that the settings ask for, or the flight recorder: snapshots and deep captures."""
        settings, warn, windows = self._setup.settings, self._notes.warn_once, list[StepListener]()
        if folder is None or (settings.memory_snapshot is None and settings.deep is None and flight is None):
            return windows
        from .._flight.scheduled import ScheduledCaptures  # slow to import
        from .._flight.snapshot import SnapshotWindow

        place, named = (folder.rank_path, folder.rank), self._setup.named
        if settings.memory_snapshot is not None:
            snapshots = SnapshotWindow(settings.memory_snapshot, *place, warn)
            self._attached.add(snapshots.close)
            windows.append(snapshots.step_begins)
            if settings.memory_snapshot.first is not None:
                sampling.reserve(settings.memory_snapshot.first, settings.memory_snapshot.window + 1)
            snapshots.begin()
        if settings.deep is not None or flight is not None:
            captures = ScheduledCaptures(
                settings.deep, *place, targets=named, sampling=sampling, summary=pipeline.summary, warn=warn,
                take=(lambda: None) if flight is None else flight.requests.take,
            )  # fmt: skip
            self._attached.add(captures.close)
            windows.append(captures.step_begins)
            captures.begin()
        if flight is not None:
            flight.start()
        return windows

    def _flight_recorder(self, folder: RunFolder | None) -> FlightRecorder | None:
        """Make the flight recorder; None where it is off, or where this run writes no files."""
        setup = self._setup
        if folder is None:
            return None
        from .._flight import open_flight_recorder

        names = {id(node.inner): node.fqn.replace(".", "/") for node in walk(setup.model) if node.fqn}
        if setup.tree is None:
            names |= {id(target.module): target.name for target in setup.named}
        wanted, warn = setup.settings.flight_recorder, self._notes.warn_once
        flight = open_flight_recorder(wanted, folder, setup.recorder, names=names, warn=warn)
        if flight is not None:
            self._attached.add(flight.close)
        return flight


def _nothing() -> None:
    """Do nothing where torch starts to compile."""
