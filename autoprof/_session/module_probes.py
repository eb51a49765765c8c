"""Make the probes of the modules that a session records."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from .._capture.handle import Handle, Probe
from .._capture.hooks.module import ModuleProbe
from .._capture.hooks.module_hooks import Hooks
from .._capture.hooks.placement import Placement
from .._capture.hooks.shapes import ShapeProbe
from .._capture.recorder import Recorder
from .._core.names import clean_name
from .._targets import NO_RULE, Target, walk
from ..devices import Memory
from ..frame import MODULE_PHASES, Phase
from .sampling import TargetSet


class ModuleProbes:
    """Make the probes of targets, each when a set first has it, and have them follow their modules' devices."""

    def __init__(
        self,
        model: nn.Module,
        recorder: Recorder,
        hooks: Hooks,
        memory: Memory,
        *,
        follow: bool,
        follows_backward: bool,
    ) -> None:
        self._model = model
        self._recorder = recorder
        self._hooks = hooks
        self._memory = memory
        self._follows_backward = follows_backward
        self._made: dict[tuple[str, str, bool], tuple[ModuleProbe, list[Probe]]] = {}
        self.placement = Placement(model, recorder, hooks, follow_kind=follow)

    def make_set(self, targets: Sequence[Target], number: int = 0) -> TargetSet:
        """Return the set of these targets; without the model itself among them, it is marked without a span."""
        every = list(targets)
        if not any(target.fqn == "" for target in targets):
            every.append(self._hidden_model())
        made = [self._probes(target) for target in every]
        self.placement.add([probe for probe, _ in made])
        return TargetSet([probe for _, probes in made for probe in probes], tuple(targets), number)

    def _hidden_model(self) -> Target:
        """Return a target for the model itself: its marks separate its own operations from its targets'."""
        root = walk(self._model)[0]
        phases = frozenset(MODULE_PHASES if self._follows_backward else (Phase.FORWARD, Phase.RECOMPUTE))
        return Target(root.module, "", clean_name(root.class_name), phases, False, NO_RULE, shown=False)

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
            probe = ModuleProbe(self._recorder, self._hooks, target, self._memory)
            probes: list[Probe] = [probe]
            if target.shapes:
                probes.append(ShapeProbe(self._recorder, target))
            self._made[key] = probe, probes
        return self._made[key]
