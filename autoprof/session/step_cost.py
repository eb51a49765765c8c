"""The cost of recording a step, and the length of the step without it, for the controller."""

from __future__ import annotations

from contextlib import AbstractContextManager
from threading import get_ident
from time import perf_counter_ns

from .account import SPENT_NS, Account, Part
from .controller import Controller


class StepCost:
    """Read both clocks at the ends of recorded steps. ``mark_ns`` is the calibrated cost of a mark."""

    def __init__(self, account: Account, controller: Controller, mark_ns: float) -> None:
        self._account = account
        self.work: AbstractContextManager[object] = account.part(Part.STEPS)
        """The context of work at the ends of steps."""
        self._steps, self._marks = account.part(Part.STEPS), account.part(Part.MARKS)
        self._controller = controller
        self._mark_ns = mark_ns
        self._charged_ns = self._paid_ns = 0
        """The cost that frames have been charged with, and that of the steps part that the controller has counted."""
        self._began_ns = self._began_cpu_ns = 0
        """The begin of the open recorded step, without the pauses in it, by both clocks."""
        self._paused_ns = self._paused_cpu_ns = 0
        """The begin of the outermost open pause by both clocks."""

    def sampled(self) -> AbstractContextManager[object]:
        """Return the context of one event, which stands for many."""
        return self._steps.sampled()

    @property
    def uncharged_ns(self) -> int:
        """The cost that no frame has been charged with yet."""
        return self._account.metered_ns - self._charged_ns

    def charge(self) -> int:
        """Return the overhead of the step that ends: the cost since the last one, without the marks, which it has."""
        charged_ns = self._charged_ns
        self._charged_ns = sum(map(SPENT_NS, self._account.metered))
        return self._charged_ns - charged_ns

    def begin_step(self) -> None:
        """Called once autoprof's own work at the end of a step is done, before a recorded step goes on."""
        self._account.thread = get_ident()
        self._began_ns, self._began_cpu_ns = perf_counter_ns(), self._account.processor_ns()

    def end_step(self, marks: int, ended_ns: int, *, counts: bool) -> None:
        """Give the controller a recorded step that ended at this time. Called in ``work``, outside of other work."""
        account = self._account
        spent_ns = self._steps.spent_ns + account.processor_ns() - account.since_ns
        work_ns, self._paid_ns = spent_ns - self._paid_ns, spent_ns
        marks_ns = round(self._mark_ns * marks)
        self._marks.spent_ns += marks_ns
        wall_ns = max(ended_ns - self._began_ns - marks_ns, 1)
        cpu_ns = min(max(account.entered_ns - self._began_cpu_ns - marks_ns, 0), wall_ns)
        if counts:
            self._controller.close(work_ns + marks_ns, cpu_ns, wall_ns, marks_ns)

    def pause(self, now_ns: int) -> None:
        """Note that the outermost pause has begun."""
        self._paused_ns, self._paused_cpu_ns = now_ns, self._account.processor_ns()

    def resume(self, now_ns: int) -> int:
        """Leave the pause that ends out of the open step; return its length."""
        ns = now_ns - self._paused_ns
        self._began_ns += ns
        self._began_cpu_ns += self._account.processor_ns() - self._paused_cpu_ns
        return ns
