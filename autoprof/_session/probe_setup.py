"""The probes and meters of a session, made from its settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .._capture.handle import Probe
from .._capture.mark_cost import MarkCost
from .._capture.probes import Hooks, ModuleProbe, Placement, RangeProbe, RangingRecorder, ShapeProbe
from .._capture.recorder import Recorder
from .._metrics import FlopMeter, Metrics, RootProbe, Telemetry, open_telemetry
from .._names import clean_name
from .._notes import Notes
from ..devices import Device, Memory
from ..frame import MODULE_PHASES, Phase
from ..probes import FetchedBatches, Prefetch, ProbeContext
from .sampling import Level

if TYPE_CHECKING:
    from .._targets import Selection, Target
    from ..config import Config


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings and facts of one set-up. ``follow``: the session reads the clock of the model's own device.

    ``budget`` is the fraction of time that autoprof may take; None without a limit.
    """

    model: nn.Module
    settings: Config
    selection: Selection
    optimizers: tuple[Any, ...]
    device: Device
    """The kind of the model's device, chosen once."""
    place: torch.device
    """The model's device at set-up."""
    recorder: Recorder
    memory: Memory
    mark_cost: MarkCost
    follow: bool
    budget: float | None

    @property
    def follows_backward(self) -> bool:
        """Whether the backward of any target is timed."""
        return any(Phase.BACKWARD in target.phases for target in self.selection)

    @property
    def governed_budget(self) -> float | None:
        """The budget for the governor; None with a clock of the caller's own, which shows no real cost."""
        return self.budget if self.follow else None


def make_metrics(setup: Setup, root: RootProbe, batches: FetchedBatches, notes: Notes) -> Metrics:
    """Open telemetry and the FLOP meter where the settings ask for them."""
    settings = setup.settings
    telemetry: Telemetry | None = None
    if setup.follow and settings.monitor == "auto":
        telemetry, note = open_telemetry(setup.device, setup.place)
        if note is not None:
            notes.warn_once(note)
    flops = None
    if settings.flops != "off":
        targets = [(target.name, target.fqn) for target in setup.selection]
        trust = settings.flops == "trust"
        flops = FlopMeter(setup.model, targets, setup.budget, setup.place, trust=trust)
    return Metrics(root, batches, notes, telemetry, flops)


def make_levels(setup: Setup, hooks: Hooks) -> tuple[list[Level], Placement]:
    """Make the module probes of every level of detail, and the placement that follows their devices."""
    from .._targets import detail_levels

    recorder = setup.recorder
    details = detail_levels(setup.model, setup.selection)
    every = {target.fqn: target for detail in details for target in detail.targets}
    modules = {fqn: ModuleProbe(recorder, hooks, target, setup.memory) for fqn, target in every.items()}
    hidden_model = ModuleProbe(recorder, hooks, _hidden_model(setup))
    placement = Placement(setup.model, recorder, hooks, [*modules.values(), hidden_model], follow_kind=setup.follow)
    probes: dict[str, list[Probe]] = {fqn: [probe] for fqn, probe in modules.items()}
    for fqn, target in every.items():
        if isinstance(recorder, RangingRecorder):  # attached first, it ends up inside autoprof's own hooks
            probes[fqn].insert(0, RangeProbe(recorder, target))
        if target.shapes:
            probes[fqn].append(ShapeProbe(recorder, target))
    levels = [
        Level(
            [probe for target in detail.targets for probe in probes[target.fqn]]
            + ([] if "" in fqns else [hidden_model]),
            detail.words,
            fqns,
        )
        for detail in details
        for fqns in [frozenset(target.fqn for target in detail.targets)]
    ]
    return levels, placement


def _hidden_model(setup: Setup) -> Target:
    """Return a target for the model itself: its marks separate its own operations from its targets'."""
    from .._targets import NO_RULE, Target, walk

    root = walk(setup.model)[0]
    phases = frozenset(MODULE_PHASES if setup.follows_backward else (Phase.FORWARD, Phase.RECOMPUTE))
    return Target(root.module, "", clean_name(root.class_name), phases, False, NO_RULE, shown=False)


def make_context(setup: Setup, hooks: Hooks, prefetch: Prefetch, batches: FetchedBatches) -> ProbeContext:
    """Make the context of the probes that watch the step outside the model's modules."""
    return ProbeContext(
        setup.model,
        setup.optimizers,
        setup.settings,
        setup.recorder,
        hooks,
        setup.follows_backward,
        training_forward_calls=[],
        prefetch=prefetch,
        batches=batches,
        real_time=setup.follow,
    )
