"""``instrument``: check the arguments, and build a session complete, in the order of the pipeline."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, TextIO

import torch
from torch import nn

from ..base.frame import Phase
from ..base.notes import Notes
from ..base.process import lifecycle
from ..base.process.gc_paused import GcPaused
from ..base.process.ranks import launch_name, rank, world_size
from ..base.process.switch import is_off
from ..base.signals import DeferSignals
from ..base.storage.runs import RunFolder
from ..capture.calibration import measure_mark_ns
from ..capture.compiler import around_compiler
from ..capture.handle import Handle, Probe
from ..capture.hooks.call_sites import keep_calls
from ..capture.hooks.checkpointing import SEES_CHECKPOINTS
from ..capture.hooks.compiled_calls import CompiledCalls
from ..capture.hooks.function import probe_function
from ..capture.hooks.module_hooks import make_hooks
from ..capture.hooks.optimizer_hooks import ModelOptimizers, OptimizerHooks
from ..capture.hooks.placement import find_anchor
from ..capture.memory import Footprint
from ..capture.recorder import Recorder
from ..devices import Clock, Memory, device_of
from ..diagnose import KEPT_STEPS, CallMonitor, Diagnosis, Environment, RunFacts, StackMonitor, ThreadMonitor
from ..errors import SessionError
from ..probes import FetchedBatches, Prefetch, ProbeContext, StepProbes, optimizers_in
from ..probes.cleared_gradients import ClearedGradients
from ..probes.collectives import CollectiveProbe
from ..probes.compilations import CompilationProbe
from ..probes.debug_modes import DebugProbe
from ..probes.loaders import LoaderProbe
from ..probes.log_calls import LogProbe
from ..probes.losses import LossProbe
from ..probes.metrics import (
    FlopMeter,
    Metrics,
    RootProbe,
    StepInputs,
    Telemetry,
    open_telemetry,
)
from ..probes.stacks import StackProbe
from ..probes.sync_calls import SyncProbe
from ..ranks import RankMonitor
from ..resolve.observer import Observer
from ..sinks import Config, Sink, close_unused, load_config, open_sinks, writes_files
from ..targets import ModuleGroup, Target, first_cut, group_tree, select_targets, unwrap, walk
from .account import Account, Part
from .compiled_graphs import CompiledGraphs
from .controller import Controller, RecordedRows
from .exclusions import Exclusions
from .module_rows import ModuleRows
from .observers import CommunicationSizes, MemoryTable, ModuleSources, StageTimes
from .pipeline import Pipeline
from .rank_exchange import LateGroup, RankExchange, make_exchange
from .repeated_steps import RepeatedSteps
from .session import OpenSession, Session
from .session_probes import SessionProbes, TargetSet
from .step_cost import StepCost
from .step_detector import StepDetector
from .step_listeners import StepListener, StepListeners
from .step_recording import StepRecording
from .training_hooks import TrainingHooks
from .training_steps import TrainingSteps
from .unseen_modules import UnseenModules

if TYPE_CHECKING:
    from .flight import FlightRecorder

UNSEEN_CHECKPOINTS: Final = (
    "this version of torch has another torch.utils.checkpoint than autoprof knows: recompute is timed only in targets"
)
INSTRUMENTED_AGAIN: Final = (
    "the session that was open on this model was closed, because the model was instrumented again"
)


def instrument(
    model: nn.Module,
    config: str | os.PathLike[str] | Mapping[str, Any] | Config | None = None,
    *,
    optimizer: Any = None,
    sinks: Iterable[Sink] = (),
) -> Session:
    """Attach autoprof to a model, open its first step, and return the session that records until it is closed.

    It closes itself when the program ends. The model computes the same bits with it as without.

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
    """The facts of a training that ``autoprof run`` or ``autoprof attach`` found, beside its model."""

    run_name: str | None = None
    """The folder below ``output``; None for the name that all ranks of a launcher give it, or a new one."""
    stream: TextIO | None = None
    """The stream for people; None for the standard output."""
    optimizers: int = 0
    """The number of optimizers that step in turn; 0 where it is unknown."""
    meeting: str | None = None
    """The name under which ranks find one another whose sessions begin in the middle of a program."""
    reader: str | None = None
    """The working directory of the person who reads, where it may be another than the program's."""


def open_session(
    model: nn.Module,
    config: str | os.PathLike[str] | Mapping[str, Any] | Config | None,
    *,
    optimizer: Any,
    sinks: Iterable[Sink],
    clock: Clock | None = None,
    memory: Memory | None = None,
    found: FoundTraining = FoundTraining(),
    processor_ns: Callable[[], int] | None = None,
) -> Session:
    """Open a session as ``instrument`` does, but with given clocks and memory. A given clock follows no device."""
    account = Account() if processor_ns is None else Account(processor_ns)
    undo = Handle()
    try:
        with account.work(Part.START):
            if not isinstance(model, nn.Module):
                raise SessionError(f"autoprof.instrument: model is a {type(model).__name__}; it must be an nn.Module")
            optimizers = optimizers_in(optimizer)
            settings = load_config(config)
            if not settings.enabled or is_off(os.environ):
                return Session()
            with DeferSignals(), GcPaused():
                return _Builder(model, settings, optimizers, clock, memory, undo, found, account).build(sinks)
    except BaseException:  # also a Ctrl-C when all is built, while the cost is counted
        with DeferSignals():
            undo.remove()
        raise


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
        account: Account,
    ) -> None:
        anchor = find_anchor(model)
        self._place = anchor.device if anchor is not None else torch.device("cpu")
        """The model's device at set-up."""
        self._device = device_of(self._place)
        self._follow, note = clock is None, None
        """Whether the session reads the clock of the model's own device."""
        if clock is None:
            clock, note = self._device.clock(self._place)
        self._model = model
        self._settings = settings
        self._optimizers = ModelOptimizers(model, optimizers)
        self._clock = clock
        self._undo = undo
        self._found = found
        self._account = account
        self._attached = Handle()
        self._recorder = Recorder(clock)
        self._mark_ns = measure_mark_ns(clock) if self._follow else 0.0
        account.open(settings.sample.budget, clock.peek)
        self._controller = Controller(account, settings.sample.every, self._mark_ns)
        self._exchange = make_exchange(self._controller, account.part(Part.RANKS), found.meeting)
        self._selection = select_targets(model, settings)
        self._tree = None if settings.targets else group_tree(model)
        """The groups of modules to choose targets from; None where the configuration has rules."""
        self._inputs = StepInputs(KEPT_STEPS)
        unseen = [] if SEES_CHECKPOINTS else [UNSEEN_CHECKPOINTS]
        self._notes = Notes([*self._selection.notes, *([note] if note else []), *unseen])
        self._memory = self._device.memory(self._place) if memory is None else memory
        undo.add(self._memory.close)
        undo.add(self._attached.remove)
        self._named: tuple[Target, ...] = self._selection
        """All targets that the session may record."""
        if self._tree is not None:
            self._named = tuple(target for group in self._tree.below() for target in group.targets())
        self._modules = list(dict.fromkeys([model, *(target.module for target in self._named)]))
        lifecycle.end_dropped()
        if lifecycle.end_owners(self._modules):
            self._notes.warn_once(INSTRUMENTED_AGAIN)
        self._folder: RunFolder | None = None

    def build(self, sinks: Iterable[Sink]) -> Session:
        """Build every part complete, each from those before it, and open the first step last."""
        undo, settings, controller = self._undo, self._settings, self._controller
        self._make_capture()
        excluded = StageTimes(self._context.prefetch)
        self._folder = folder = self._make_folder()
        metrics = self._metrics()
        undo.add(metrics.close)
        observers = self._observers(metrics, excluded)
        if self._tree is None:
            controller.rows = RecordedRows(self._session_probes.make_set(self._selection))
        else:
            controller.rows = rows = self._module_rows(self._tree)
            observers.append(rows)
        stream, reader = self._found.stream, self._found.reader
        made = open_sinks(
            settings, folder, stream, self._account.part(Part.FIGURES), self._notes.warn_once, reader=reader
        )
        undo.add(partial(close_unused, made))
        pipeline = Pipeline(
            self._recorder,
            self._clock,
            self._mark_ns,
            observers=observers,
            sinks=[*made, *sinks],
            folder=folder,
            notes=self._notes,
            account=self._account,
            now_ns=self._clock.peek,
            spend=controller.spend_on_rows,
            reports_cost=self._follow,
        )
        steps = self._steps(pipeline, excluded)
        session = self._begin(steps, pipeline)
        if self._exchange is not None:
            self._exchange.start()
        return session

    def _begin(self, steps: TrainingSteps, pipeline: Pipeline) -> Session:
        """Claim the modules, attach the probes that stay, and open the first step."""
        hooks = TrainingHooks(
            self._model,
            self._optimizers,
            steps,
            self._recorder,
            auto=self._settings.step == "auto",
            training_forward_calls=self._context.training_forward_calls,
        )
        reporting = StepProbes(replace(self._context, events=hooks))
        self._attached.add(reporting.remove)
        session = OpenSession(
            pipeline,
            steps,
            hooks,
            reporting.find(LoaderProbe),
            self._account,
            memory=self._memory,
            notes=self._notes,
            folder=self._folder,
            attached=self._attached,
        )
        self._undo.add(partial(lifecycle.release, session))
        lifecycle.claim(session, self._modules)
        for probe in (*self._probes.always, *reporting.always):
            probe.attach()
        self._undo.add(session.abandon)
        session.start()
        return session

    def _make_capture(self) -> None:
        """Make the parts that write marks; nothing but functions is attached yet."""
        model, recorder, settings, attached = self._model, self._recorder, self._settings, self._attached
        for i, rule in enumerate(settings.functions):
            where = settings.source.place(("functions", i, "path"))
            attached.add(probe_function(rule.path, rule.label, where).remove)
        hooks_allowance = self._account.part(Part.STEPS)
        self._footprint = Footprint(model, self._memory_names(), self._account.part(Part.FOOTPRINT))
        hooks = make_hooks(recorder)
        follows_backward = any(Phase.BACKWARD in target.phases for target in self._selection)
        self._root = RootProbe(model, recorder, hooks_allowance, hooks.passes if follows_backward else None)
        attached.add(self._root.remove)
        self._context = ProbeContext(
            model,
            self._optimizers,
            settings,
            recorder,
            hooks,
            follows_backward,
            training_forward_calls=[],
            prefetch=Prefetch(),
            batches=FetchedBatches(),
            hooks_allowance=hooks_allowance,
            lines_allowance=self._account.part(Part.LINES),
            real_time=self._follow,
        )
        self._probes = StepProbes(self._context)
        attached.add(self._probes.remove)
        self._footprint.watch(self._probes.find(LossProbe).losses)
        step_probes: list[Probe] = [OptimizerHooks(after=self._footprint.stepped), self._root, *self._probes.sampled]
        self._graphs = CompiledGraphs(model, recorder)
        attached.add(self._graphs.remove)
        self._session_probes = SessionProbes(
            model,
            recorder,
            hooks,
            self._memory,
            hooks_allowance,
            step_probes,
            self._notes.add,
            self._graphs,
            follow=self._follow,
            follows_backward=follows_backward,
            warmup=settings.sample.warmup,
        )
        attached.add(self._session_probes.remove)

    def _memory_names(self) -> Iterator[tuple[str, nn.Module]]:
        """Yield name and module of the targets whose memory is counted: of a tree, the upper levels."""
        if self._tree is None:
            yield from ((target.name, target.module) for target in self._selection)
            return
        counted, level = 0, [self._tree]
        while level:
            for group in level:
                counted += sum(1 for node in group.nodes for _ in node.inner.parameters())
                # Parameters counted for the memory of names, each once for every name that contains it.
                if counted > 4096:
                    return
                yield from ((group.name, node.module) for node in group.nodes)
            level = [child for group in level for child in group.children]

    def _module_rows(self, tree: ModuleGroup) -> ModuleRows:
        probes = self._session_probes

        def make_set(groups: Iterable[ModuleGroup], number: int) -> TargetSet:
            return probes.make_set([one for group in groups if group.is_recordable for one in group.targets()], number)

        folder = self._folder.path if self._folder is not None and self._folder.rank == 0 else None
        return ModuleRows(tree, first_cut(tree), make_set, folder)

    def _metrics(self) -> Metrics:
        """Open telemetry and the FLOP meter where the settings ask for them."""
        telemetry: Telemetry | None = None
        if self._follow and self._settings.monitor == "auto":
            telemetry, note = open_telemetry(self._device, self._place)
            if note is not None:
                self._notes.warn_once(note)
        flops = None
        if self._settings.flops != "off":
            targets = [(target.name, target.fqn) for target in self._named]
            part = self._account.part
            flops = FlopMeter(self._model, self._root.models, targets, part(Part.FLOPS), part(Part.END), self._place)
        return Metrics(
            self._root, self._context.batches, telemetry, flops, self._inputs, shares_inputs=self._exchange is not None
        )

    def _observers(self, metrics: Metrics, excluded: StageTimes) -> list[Observer]:
        folder, exchange = self._folder, self._exchange
        observers: list[Observer] = [
            metrics,  # first: it adds to the scalars of the steps
            MemoryTable(self._footprint),
            excluded,
            *([] if exchange is None else [self._communication_sizes()]),
            self._diagnosis(),  # after the observers that add the figures of the summary which it judges
            *([] if folder is None else [ModuleSources(self._model, folder)]),
            self._unseen_modules(),
        ]
        if exchange is None:
            observers.append(LateGroup(self._notes))
        else:
            observers.append(RankExchange(exchange, shows=rank() == 0))
            self._undo.add(exchange.finish)
        observers.append(self._controller)
        return observers

    def _communication_sizes(self) -> CommunicationSizes:
        return CommunicationSizes(self._probes.find(CollectiveProbe).traffic, self._recorder.labels)

    def _unseen_modules(self) -> UnseenModules:
        unseen = UnseenModules(self._recorder, self._model, self._selection, self._graphs, self._notes)
        self._attached.add(keep_calls().remove)
        self._attached.add(around_compiler(lambda: None, unseen.compiled).remove)
        if self._settings.compile == "inside":
            self._attached.add(self._graphs.follow().remove)
        else:
            self._graphs.reasons.setdefault(f"the configuration has compile: {self._settings.compile}")
        calls = CompiledCalls([(node.inner, node.module) for node in walk(self._model)], unwrap, unseen.found)
        self._attached.add(calls.close)
        calls.begin()
        return unseen

    def _steps(self, pipeline: Pipeline, excluded: StageTimes) -> TrainingSteps:
        find = self._probes.find
        flight = self._flight_recorder()
        stacks = find(StackProbe)
        detector = StepDetector(
            auto=self._settings.step == "auto",
            thread=get_ident(),
            optimizers=self._optimizers.given or self._found.optimizers,
        )
        cost = StepCost(self._account, self._controller, self._mark_ns)
        recording = StepRecording(
            self._recorder,
            self._memory,
            self._session_probes,
            self._controller.rows,
            cost,
            self._notes,
            warmup=self._settings.sample.warmup,
        )
        pause_listeners = (stacks.exclude,) if flight is None else (stacks.exclude, flight.ring.pause)
        listeners = StepListeners(self._listeners(pipeline, flight), pause_listeners, flight)
        exclusions = Exclusions(excluded, recording, listeners, cost)
        events = RepeatedSteps(detector, self._recorder, cost.sampled, self._recorder.handle_failure)
        return TrainingSteps(events, self._controller, recording, pipeline, exclusions, listeners, cost, self._notes)

    def _make_folder(self) -> RunFolder | None:
        """Make the folder that this run's sinks write to; None where none of them writes files."""
        settings = self._settings
        if not writes_files(settings.sinks) and settings.memory_snapshot is None and settings.deep is None:
            return None
        folder = RunFolder.create(
            settings.output,
            rank=rank(),
            world_size=world_size(),
            name=self._found.run_name or (launch_name() if world_size() > 1 else None),
            config=settings.model_dump(mode="json"),
            devices=[self._device.name(self._place)],
        )
        self._undo.add(folder.discard)
        return folder

    def _diagnosis(self) -> Diagnosis:
        facts = RunFacts(
            budget=self._settings.sample.budget,
            memory_capacity_bytes=self._memory.capacity_bytes(),
            world_size=world_size(),
            rank=rank(),
            leaf_modules=sum(not module._modules for module in self._model.modules()),
            environment=Environment.read(self._place.type, os.environ),
        )
        folder = None if self._folder is None else self._folder.path
        ranks = RankMonitor(folder, rank(), world_size(), self._exchange)
        find = self._probes.find
        calls = CallMonitor(find(SyncProbe), find(LogProbe), find(CompilationProbe), find(DebugProbe))
        stacks = StackMonitor(find(StackProbe))
        return Diagnosis(
            facts,
            self._footprint,
            calls,
            ranks,
            stacks,
            ThreadMonitor(),
            self._session_probes.sizes,
            self._session_probes.results,
            find(ClearedGradients),
            self._inputs.explained,
            self._account.part(Part.VARIABLES),
        )

    def _listeners(self, pipeline: Pipeline, flight: FlightRecorder | None) -> list[StepListener]:
        """Begin the snapshot and the captures that the settings ask for, or the flight recorder."""
        settings, folder, warn = self._settings, self._folder, self._notes.warn_once
        if folder is None:
            return []
        if settings.memory_snapshot is not None and settings.memory_snapshot.oom:
            from .flight.snapshot import OomSnapshot

            snapshot = OomSnapshot(folder.rank_path, folder.rank, warn)
            self._attached.add(snapshot.close)
            snapshot.open()
        if settings.deep is None and flight is None:
            return []
        from .flight.scheduled import ScheduledCaptures  # slow to import

        captures = ScheduledCaptures(
            settings.deep,
            folder.rank_path,
            folder.rank,
            targets=self._named,
            reserve=self._controller.reserve,
            warn=warn,
            take_request=(lambda: False) if flight is None else flight.take_request,
        )
        self._attached.add(captures.close)
        captures.begin()
        if flight is not None:
            flight.start()
        return [captures.step_begins]

    def _flight_recorder(self) -> FlightRecorder | None:
        """Make the flight recorder; None where it is off, or where this run writes no files."""
        if self._folder is None:
            return None
        from .flight import FlightRecorder

        names = {id(node.inner): node.fqn.replace(".", "/") for node in walk(self._model) if node.fqn}
        if self._tree is None:
            names |= {id(target.module): target.name for target in self._named}
        wanted, warn = self._settings.flight_recorder, self._notes.warn_once
        flight = FlightRecorder.open(wanted, self._folder, self._recorder, names=names, warn=warn)
        if flight is not None:
            self._attached.add(flight.close)
        return flight
