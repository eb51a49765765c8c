"""The probes and meters of a session, made from its settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import nn

from .._capture.handle import Handle, Probe
from .._capture.hooks.module import ModuleProbe
from .._capture.hooks.module_hooks import Hooks
from .._capture.hooks.optimizer_hooks import ModelOptimizers
from .._capture.hooks.placement import Placement
from .._capture.hooks.shapes import ShapeProbe
from .._capture.mark_cost import MarkCost
from .._capture.recorder import Recorder
from .._core.names import clean_name
from .._core.notes import Notes
from .._metrics import FlopMeter, Metrics, RootProbe, Telemetry, open_telemetry
from .._targets import NO_RULE, ModuleGroup, Selection, Target, first_cut, walk
from ..devices import Device, Memory
from ..frame import MODULE_PHASES, Phase
from ..probes import FetchedBatches
from ..sinks import Config
from .row_choice import RuleRows
from .sampling import TargetSet
from .zoom import Zoom

PASSES_PART: Final = 0.3
"""The part of the budget for passes. A pass takes some milliseconds however few steps it resolves: it comes less often
where that is more than its part, which recording fewer steps would not change."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings and facts of one set-up. ``follow``: the session reads the clock of the model's own device.

    ``budget`` is the fraction of time that autoprof may take; None without a limit.
    """

    model: nn.Module
    settings: Config
    selection: Selection
    """The targets to begin with."""
    tree: ModuleGroup | None
    """The groups of modules to choose targets from; None where the configuration has rules."""
    optimizers: ModelOptimizers
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
    def named(self) -> tuple[Target, ...]:
        """All targets that the session may record."""
        if self.tree is None:
            return self.selection
        return tuple(target for group in self.tree.below() for target in group.targets())

    @property
    def follows_backward(self) -> bool:
        """Whether the backward of any target is timed."""
        return any(Phase.BACKWARD in target.phases for target in self.selection)

    @property
    def pass_share(self) -> float:
        """The part of the run's time for passes."""
        # The budget that passes keep to where there is no budget for marks.
        return PASSES_PART * (self.budget or 0.01)

    @property
    def marks_budget(self) -> float | None:
        """The rest of the budget, for marks; None with a clock of the caller's own, which shows no real cost."""
        return (1 - PASSES_PART) * self.budget if self.budget is not None and self.follow else None


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
        targets = [(target.name, target.fqn) for target in setup.named]
        flops = FlopMeter(setup.model, targets, setup.budget, setup.place)
    return Metrics(root, batches, notes, telemetry, flops)


class ModuleProbes:
    """Make the probes of targets, each when a set first has it, and have them follow their modules' devices."""

    def __init__(self, setup: Setup, hooks: Hooks) -> None:
        self._setup = setup
        self._hooks = hooks
        self._made: dict[tuple[str, str, bool], tuple[ModuleProbe, list[Probe]]] = {}
        self.placement = Placement(setup.model, setup.recorder, hooks, follow_kind=setup.follow)

    def make_set(self, targets: Sequence[Target], number: int = 0) -> TargetSet:
        """Return the set of these targets; without the model itself among them, it is marked without a span."""
        every = list(targets)
        if not any(target.fqn == "" for target in targets):
            every.append(_hidden_model(self._setup))
        made = [self._probes(target) for target in every]
        self.placement.add([probe for probe, _ in made])
        return TargetSet([probe for _, probes in made for probe in probes], tuple(targets), number)

    def remove(self) -> None:
        """Remove all probes for good."""
        handle = Handle()
        for _, probes in self._made.values():
            for probe in probes:
                handle.add(probe.remove)
        handle.remove()

    def _probes(self, target: Target) -> tuple[ModuleProbe, list[Probe]]:
        """Return the probe that marks the target's calls, and all probes of the target in the order of attaching."""
        key = target.fqn, target.name, target.shown  # a module that is split off its group has another name
        if key not in self._made:
            setup, recorder = self._setup, self._setup.recorder
            probe = ModuleProbe(recorder, self._hooks, target, setup.memory)
            probes: list[Probe] = [probe]
            if target.shapes:
                probes.append(ShapeProbe(recorder, target))
            self._made[key] = probe, probes
        return self._made[key]


def make_rows(setup: Setup, probes: ModuleProbes) -> RuleRows | Zoom:
    """Return the choice of targets: the zoom's without rules, else those of the rules that the budget affords."""
    if setup.tree is None:
        return RuleRows(setup.selection, probes.make_set)

    def make_set(groups: Iterable[ModuleGroup], number: int) -> TargetSet:
        targets = [target for group in groups for target in group.targets() if group.is_recordable]
        return probes.make_set(targets, number)

    first = first_cut(setup.tree)
    return Zoom(setup.tree, first, make_set, setup.marks_budget, setup.mark_cost)


def _hidden_model(setup: Setup) -> Target:
    """Return a target for the model itself: its marks separate its own operations from its targets'."""
    root = walk(setup.model)[0]
    phases = frozenset(MODULE_PHASES if setup.follows_backward else (Phase.FORWARD, Phase.RECOMPUTE))
    return Target(root.module, "", clean_name(root.class_name), phases, False, NO_RULE, shown=False)


def memory_names(setup: Setup) -> Iterator[tuple[str, nn.Module]]:
    """Yield name and module of the targets whose memory is counted: of a tree, the upper levels."""
    if setup.tree is None:
        yield from ((target.name, target.module) for target in setup.selection)
        return
    counted, level = 0, [setup.tree]
    while level:
        for group in level:
            counted += sum(1 for node in group.nodes for _ in node.inner.parameters())
            # Parameters counted for the memory of names, each once for every name that contains it.
            if counted > 4096:
                return
            yield from ((group.name, node.module) for node in group.nodes)
        level = [child for group in level for child in group.children]
