"""What a session is equipped with: the probes of its levels, what sees the step beside the model, gauges, snapshots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .._capture.handle import Handle, Probe
from .._capture.mark_cost import MarkCost
from .._capture.memory import Footprint, SnapshotWindow
from .._capture.probes import (
    Hooks,
    ModuleProbe,
    OptimizerHooks,
    Placement,
    RangeProbe,
    RangingRecorder,
    ShapeProbe,
)
from .._capture.recorder import Recorder
from .._metrics import FlopMeter, Metrics, RootProbe, Telemetry, open_telemetry, peak_of
from ..devices import Memory
from ..frame import Phase
from ..probes import ProbeContext, StepProbes
from .sampling import Level, Sampling
from .step_tracker import StepTracker

if TYPE_CHECKING:
    from .._storage.runs import RunFolder
    from .._targets import Selection
    from ..config import Config


@dataclass(frozen=True, slots=True)
class Setup:
    """What is known when a session is set up. ``follow`` says that it reads the model's own device."""

    model: nn.Module
    settings: Config
    selection: Selection
    optimizers: tuple[Any, ...]
    device: torch.device
    recorder: Recorder
    memory: Memory
    price: MarkCost
    follow: bool

    @property
    def follows_backward(self) -> bool:
        """Whether any target wants its backward timed."""
        return any(Phase.BACKWARD in target.phases for target in self.selection)

    @property
    def budget(self) -> float | None:
        """What the governor keeps; a clock of the caller's own moves as a test says: no cost can be read from it."""
        return self.settings.sample.budget if self.follow else None


def make_metrics(setup: Setup, root: RootProbe, say: Callable[[str], None]) -> Metrics:
    """Open what reads the devices and counts the work."""
    settings, model, device = setup.settings, setup.model, setup.device
    telemetry: Telemetry | None = None
    if setup.follow and settings.monitor == "auto":
        telemetry, note = open_telemetry(device)
        if note is not None:
            say(note)
    flops = None
    if settings.flops != "off":
        targets = [(target.name, target.fqn) for target in setup.selection]
        trust = settings.flops == "trust"
        flops = FlopMeter(model, targets, settings.sample.budget, lambda: peak_of(model, device), trust=trust)
    return Metrics(root, telemetry, flops, say)


def make_sampling(setup: Setup, hooks: Hooks, footprint: Footprint) -> tuple[Sampling, Placement]:
    """Make the probes of every level of detail, and what follows the modules from device to device."""
    from .._targets import detail_levels

    sample, recorder = setup.settings.sample, setup.recorder
    details = detail_levels(setup.model, setup.selection)
    every = {target.fqn: target for detail in details for target in detail.targets}
    modules = {fqn: ModuleProbe(recorder, hooks, target, setup.memory) for fqn, target in every.items()}
    placement = Placement(setup.model, recorder, hooks, [*modules.values()], follow_kind=setup.follow)
    probes: dict[str, list[Probe]] = {fqn: [probe] for fqn, probe in modules.items()}
    for fqn, target in every.items():
        if isinstance(recorder, RangingRecorder):  # attached first, it ends up inside autoprof's own hooks
            probes[fqn].insert(0, RangeProbe(recorder, target))
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
    sampling = Sampling(recorder, levels, every=sample.every, budget=setup.budget, price=setup.price)
    sampling.step_probes.append(OptimizerHooks(setup.optimizers, after=footprint.stepped))
    return sampling, placement


def make_step_probes(setup: Setup, hooks: Hooks, tracker: StepTracker) -> StepProbes:
    """Make the probes that watch the step outside the model's modules."""
    context = ProbeContext(
        setup.model,
        setup.optimizers,
        setup.settings,
        setup.recorder,
        tracker.state,
        hooks,
        setup.follows_backward,
    )
    return StepProbes(context)


def open_snapshots(
    setup: Setup, folder: RunFolder | None, steps: StepTracker, say: Callable[[str], None], undo: Handle
) -> None:
    """Have the allocator's snapshots taken that the configuration asks for."""
    wanted = setup.settings.memory_snapshot
    if wanted is None or folder is None:
        return
    window = SnapshotWindow(wanted, folder.rank_path, folder.rank, say)
    undo.add(window.close)
    steps.on_begin(window.step_begins)
    if wanted.first is not None:
        steps.sampling.reserve(wanted.first, wanted.window + 1)
    window.begin()
