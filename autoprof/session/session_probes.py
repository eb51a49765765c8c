"""Make the probes of the recorded modules, attach them in recorded steps, and detach them in the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import nn

from ..base.allowance import Allowance
from ..base.frame import MODULE_PHASES, Phase
from ..base.names import clean_name
from ..base.weak import Weak
from ..capture.handle import Handle, Probe
from ..capture.hooks.module import ModuleProbe
from ..capture.hooks.module_hooks import Hooks
from ..capture.hooks.placement import Placement
from ..capture.hooks.results import ResultProbes, StepResults
from ..capture.hooks.shapes import ShapeProbe
from ..capture.hooks.sizes import ModuleSize, SizeProbe
from ..capture.recorder import Recorder, activate
from ..devices import Memory
from ..targets import NO_RULE, Target, walk
from .compiled_graphs import CompiledGraphs


class TargetSet(NamedTuple):
    """Targets that are recorded together, their probes, and the number of this set."""

    probes: Sequence[Probe] = ()
    targets: tuple[Target, ...] = ()
    number: int = 0


class SessionProbes:
    """The probes of a session's targets, each made when a set first has it.

    ``step_probes`` are attached in recorded steps, with the probes of any set. ``allowance`` pays for the readings of
    memory within steps.
    """

    _model = Weak()

    def __init__(
        self,
        model: nn.Module,
        recorder: Recorder,
        hooks: Hooks,
        memory: Memory,
        allowance: Allowance,
        step_probes: Sequence[Probe],
        note: Callable[[str], None],
        graphs: CompiledGraphs,
        *,
        follow: bool,
        follows_backward: bool,
        warmup: int,
    ) -> None:
        self._model = model
        self._recorder = recorder
        self._hooks = hooks
        self._memory = memory
        self._allowance = allowance
        self._note = note
        self._follows_backward = follows_backward
        self._made: dict[tuple[str, str, bool], tuple[ModuleProbe, list[Probe]]] = {}
        self.sizes: dict[str, ModuleSize] = {}
        """What the first calls of each target show, by its fqn."""
        self.results = StepResults(allowance, warmup)
        self.placement = Placement(model, recorder, hooks, follow_kind=follow)
        """Has the probes follow their modules' devices."""
        self.set = TargetSet()
        """The targets recorded in the open step, or in the last one."""
        self.fqns: frozenset[str] = frozenset()
        """The fqns of the modules that are recorded when called."""
        self._graphs = graphs
        modules = ((node.fqns[0], node.module) for node in walk(model)) if warmup > 1 else ()
        self._step_probes = (*step_probes, graphs, ResultProbes(recorder, modules, self.results))
        self.are_on = False
        """Whether they are attached."""
        self._idling: Sequence[Probe] | None = None
        """The probes of the present targets that stay attached, and mark nothing where they are off; None: unknown."""
        self._switched: Sequence[Probe] = ()
        """The probes that are attached and detached."""

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

    def _probes(self, target: Target) -> tuple[ModuleProbe, list[Probe]]:
        """Return the probe that marks the target's calls, and all probes of the target in the order of attaching."""
        key = target.fqn, target.name, target.shown  # a module that is split off its group has another name
        if key not in self._made:
            probe = ModuleProbe(self._recorder, self._hooks, target, self._memory, self._allowance)
            probes: list[Probe] = [probe]
            if target.shown:
                probes.append(SizeProbe(self._recorder, target, self.sizes, self._allowance))
            if target.shapes:
                probes.append(ShapeProbe(self._recorder, target, self._note))
            self._made[key] = probe, probes
        return self._made[key]

    def use(self, chosen: TargetSet) -> None:
        """Take over another set, whose probes are attached from the step that begins now."""
        self.renew()
        self._graphs.use(chosen.targets)
        self.set, self.fqns = chosen, frozenset(target.fqn for target in chosen.targets)

    def renew(self) -> None:
        """Detach all probes of the present targets, which change: another set of them, or on another device."""
        self.switch(False)
        for probe in self._idling or ():
            probe.detach()
        self._idling = None

    def switch(self, on: bool) -> None:
        """Attach all probes of the present targets, or detach those attached that cannot stay idle."""
        if on == self.are_on:
            return
        self.are_on = on
        activate(self._recorder, on)
        self._recorder.idle(not on)
        if on and self._idling is None:
            probes = (*self.set.probes, *self._step_probes)
            self._switched = [probe for probe in probes if not getattr(probe, "idles", False)]
            self._idling = [probe for probe in probes if getattr(probe, "idles", False)]
            for probe in self._idling:
                probe.attach()
        for probe in self._switched:
            if on:
                probe.attach()
            else:
                probe.detach()

    def detach_all(self) -> None:
        """Detach all probes, also where a signal interrupted ``switch``; raise the first failure at the end."""
        self.are_on, self._idling, self._switched = False, None, ()
        activate(self._recorder, False)
        handle = Handle()
        for probe in (*self._every(), *self._step_probes):
            handle.add(probe.detach)
        handle.remove()

    def remove(self) -> None:
        """Remove all probes of targets for good."""
        handle = Handle()
        for probe in self._every():
            handle.add(probe.remove)
        handle.remove()

    def _every(self) -> list[Probe]:
        return [probe for _, probes in self._made.values() for probe in probes]
