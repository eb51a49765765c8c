"""Attach the probes in recorded steps, and detach them in the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns, thread_time_ns
from typing import NamedTuple

from .._capture.handle import Probe
from .._capture.recorder import Recorder, activate
from .._targets import Target
from .sampler import Sampler


class TargetSet(NamedTuple):
    """Targets that are recorded together, their probes, and the number of this set."""

    probes: Sequence[Probe] = ()
    targets: tuple[Target, ...] = ()
    number: int = 0

    @property
    def fqns(self) -> frozenset[str]:
        """The fqns of the modules that are recorded when called."""
        return frozenset(target.fqn for target in self.targets)


class Sampling:
    """Attach the probes of the present targets in recorded steps, and keep the account of each step.

    ``choose`` returns the targets to record from the next step on; ``step_probes`` are attached with any of them.
    """

    def __init__(
        self,
        recorder: Recorder,
        sampler: Sampler,
        choose: Callable[[], TargetSet],
        step_probes: Sequence[Probe],
        mark_ns: float,
    ) -> None:
        self._step_probes = tuple(step_probes)
        self._sampler = sampler
        self._recorder = recorder
        self._choose = choose
        self.set = choose()
        """The targets recorded in the open step, or in the last one."""
        self.fqns = self.set.fqns
        """The fqns of the modules that are recorded when called."""
        self._mark_ns = mark_ns
        self._is_on = False
        self._idling: Sequence[Probe] | None = None
        """The probes of the present targets that stay attached, and mark nothing where they are off; None: unknown."""
        self._switched: Sequence[Probe] = ()
        """The probes that are attached and detached."""
        self._ever_attached: dict[int, Probe] = {}
        self._began_ns = self._began_cpu_ns = 0
        self._paid_ns = 0
        self._asked = False
        """Whether the open step has work that the user has asked for, whose length says nothing."""
        self._reserved: list[tuple[int, int]] = []
        self._described_stride = sampler.stride

    # Probes.

    def begin_step(self, step: int) -> str | None:
        """Take over another set of targets: the probes attached are those of the step that begins now.

        Return, once, a note that the budget changes which steps are recorded from this one on.
        """
        chosen, stride, before = self._choose(), self._sampler.stride, self._described_stride
        if chosen is not self.set:
            self.renew()
            self.set, self.fqns = chosen, chosen.fqns
            self._sampler.restart()
        if stride == before:
            return None
        self._described_stride = stride
        why = "to keep the budget" if stride > before else "there is room in the budget again"
        which = "every step" if stride == 1 else f"one of {stride} steps"
        return f"{why}: from step {step} on, {which} is recorded"

    def renew(self) -> None:
        """Detach all probes of the present targets, which change: another set of them, or on another device."""
        self.switch(False)
        for probe in self._idling or ():
            probe.detach()
        self._idling = None

    def switch(self, on: bool) -> None:
        """Attach all probes of the present targets, or detach those attached that cannot stay idle."""
        if on == self._is_on:
            return
        self._is_on = on
        activate(self._recorder, on)
        self._recorder.idle(not on)
        if on and self._idling is None:
            self._attach_set()
        for probe in self._switched:
            if on:
                probe.attach()
            else:
                probe.detach()

    def _attach_set(self) -> None:
        """Attach the probes that stay attached from now on."""
        probes = (*self.set.probes, *self._step_probes)
        self._ever_attached.update((id(probe), probe) for probe in probes)
        idling = [probe for probe in probes if getattr(probe, "idles", False)]
        self._switched = [probe for probe in probes if not getattr(probe, "idles", False)]
        for probe in idling:
            probe.attach()
        self._idling = idling

    def detach_all(self) -> None:
        """Detach all probes, also where a signal interrupted ``switch``; raise the first failure at the end."""
        self._is_on, self._idling, self._switched = False, None, ()
        activate(self._recorder, False)
        failed: list[Exception] = []
        for probe in self._ever_attached.values():
            try:
                probe.detach()
            except Exception as error:
                failed.append(error)
        if failed:
            raise failed[0]

    # The account.

    def reserve(self, first: int, count: int) -> None:
        """Record these steps whatever their cost."""
        self._reserved.append((first, first + count))

    def release(self, first: int, count: int) -> None:
        """Cancel a reservation."""
        if (first, first + count) in self._reserved:
            self._reserved.remove((first, first + count))

    def exclude(self, ns: int) -> None:
        """Leave the open step out of the account: the user has asked for ``ns`` of work in it."""
        self._asked = self._asked or ns > 0

    def close(self, marks: int, paid_ns: int, ended_ns: int, ended_cpu_ns: int) -> None:
        """Count the cost and the length of a recorded step.

        ``marks`` were made in it; ``paid_ns`` is autoprof's own processor time so far. Its work at the end of the step
        began at ``ended_ns``, by the thread's clock ``ended_cpu_ns``.
        """
        work_ns, self._paid_ns = paid_ns - self._paid_ns, paid_ns
        marks_ns = round(self._mark_ns * marks)
        wall_ns = max(ended_ns - self._began_ns - marks_ns, 1)
        cpu_ns = min(max(ended_cpu_ns - self._began_cpu_ns - marks_ns, 0), wall_ns)
        if not self._asked:
            self._sampler.close(work_ns + marks_ns, cpu_ns, wall_ns, marks_ns)
        self._asked = False

    # The begins and ends of steps.

    def next_recorded(self, step: int) -> int:
        """Return the number of the first step from this one on that is recorded."""
        chosen = step + self._sampler.gap(step - 1)
        if not self._reserved:
            return chosen
        return min([chosen, *(max(first, step) for first, end in self._reserved if step < end)])

    def start_clocks(self) -> None:
        """Called once autoprof's own work at the end of a step is done, before a recorded step goes on."""
        self._began_ns, self._began_cpu_ns = perf_counter_ns(), thread_time_ns()

    def exclude_pause(self, ns: int, cpu_ns: int = 0) -> None:
        """Exclude a pause from the open step."""
        self._began_ns += ns
        self._began_cpu_ns += cpu_ns
