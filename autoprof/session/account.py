"""The account of a run: it adds up autoprof's own cost, and hands the budget out to the parts that spend it.

The budget is ``sample.budget``, a fraction of the run's time. ``TABLE`` divides it; the shares sum to 1. ``first`` is
what the account affords a part before the run is long enough to pay for it, while all together cost less than twice the
budget, or 50 ms. Each part keeps a third of its own. Work that has begun is finished, so short runs cost more.

| part | share | first | counts | when it is spent |
|---|---|---|---|---|
| marks | 0.30 | 18 ms | readings of the clock, each by its calibrated cost | rows close, then steps are left out |
| steps | 0.20 | 15 ms | hooks, and work at the ends of steps | steps are left out |
| passes | 0.20 | 12 ms | resolving steps, statistics, files | passes come less often, then as for marks |
| lines | 0.15 | 12 ms | samples of the training thread's stack | samples come less often |
| variables | 0.06 | 6 ms | looks for variables that keep tensors | the next look comes later |
| ranks | 0.02 | – | messages between ranks, on a thread | nothing: there are few, of limited size |
| footprint | 0.02 | 1 ms | counts of the bytes of parameters, gradients and optimizer state | a count waits |
| flops | 0.03 | – | counts of the model's operators | a count waits, or stops; the report says so |
| figures | 0.01 | – | ``memory.png`` | it is not drawn; ``autoprof show`` draws it |
| end | 0.01 | 2,050 ms | the last counts, verdict and reports | only two seconds of counts are left |

The last four are done once, or a few times: beside their ``first`` they may spend all that the others have left. The
others keep to their shares.

``sample.budget: null`` limits nothing: each part then works as often as is useful, by an interval of its own. The
clocks are given: of the run's time, and of the calling thread's processor time, which other programs do not change.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from math import inf
from operator import attrgetter
from threading import get_ident
from time import perf_counter_ns, thread_time_ns
from typing import Final, NamedTuple

from ..base.allowance import SAMPLED_CALLS
from ..base.units import NS_PER_MS, NS_PER_S

SPENT_NS: Final = attrgetter("spent_ns")
LONGEST_CALL_NS: Final = 50_000
"""The longest time of a sampled call that counts: one that collects garbage takes as long as thousands of others."""
LONGEST_PAUSE_NS: Final = 24 * 3600 * NS_PER_S
"""The longest pause: a rate of almost nothing would make it longer than any run."""


class Part(Enum):
    """A kind of own work. The start is paid before the run; all others share the budget."""

    START = "start"
    MARKS = "marks"
    STEPS = "steps"
    PASSES = "passes"
    LINES = "lines"
    VARIABLES = "variables"
    RANKS = "ranks"
    FOOTPRINT = "footprint"
    FLOPS = "flops"
    FIGURES = "figures"
    END = "end"


class Share(NamedTuple):
    """A row of the table."""

    share: float
    first_ns: int = 0
    once: bool = False
    """Whether the work is done once, and may spend all that the other parts have left."""


TABLE: Final = {
    Part.MARKS: Share(0.30, 18 * NS_PER_MS),
    Part.STEPS: Share(0.20, 15 * NS_PER_MS),
    Part.PASSES: Share(0.20, 12 * NS_PER_MS),
    Part.LINES: Share(0.15, 12 * NS_PER_MS),
    Part.VARIABLES: Share(0.06, 6 * NS_PER_MS),
    Part.RANKS: Share(0.02),
    Part.FOOTPRINT: Share(0.02, 1 * NS_PER_MS, once=True),
    Part.FLOPS: Share(0.03, once=True),
    Part.FIGURES: Share(0.01, once=True),
    Part.END: Share(0.01, 2050 * NS_PER_MS, once=True),  # a person waits two seconds for the report once
}
"""The parts of the budget. The shares sum to 1."""
MOST_NS: Final = 50 * NS_PER_MS
"""The cost from which on a run of any length affords no more than what is reserved."""
RESERVED_NS: Final = 12 * NS_PER_MS
"""The part of it for those that begin late: a third of what each may cost at first."""
RECORDING: Final = (Part.MARKS, Part.STEPS)
"""The parts that cost less where fewer rows or steps are recorded."""


class _Work:
    """The context of work on the training thread: each nanosecond is counted by the innermost one."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self.spent_ns = 0
        """The time of this work so far, open work not included."""

    def __enter__(self) -> None:
        account = self._account
        now_ns = account.processor_ns()
        if account.inside:
            account.inside[-1].spent_ns += now_ns - account.since_ns
        else:
            account.entered_ns = now_ns
        account.since_ns = now_ns
        account.inside.append(self)

    def __exit__(self, *_error: object) -> None:
        account = self._account
        now_ns = account.processor_ns()
        account.inside[-1].spent_ns += now_ns - account.since_ns
        account.since_ns = now_ns
        while account.inside and account.inside.pop() is not self:  # an exception has left the others
            pass


class PartAllowance(_Work):
    """The ``Allowance`` of one part."""

    def __init__(self, account: Account, part: Part) -> None:
        super().__init__(account)
        self.part = part
        self.processor_ns = account.processor_ns

    def work(self) -> AbstractContextManager[object]:
        return self if get_ident() == self._account.thread else _ThreadWork(self._account, self)

    def sampled(self) -> AbstractContextManager[object]:
        return _SampledWork(self._account, self) if get_ident() == self._account.thread else nullcontext()

    def count(self, ns: int) -> None:
        self.spent_ns += ns

    def affords(self, ns: float) -> bool:
        return self._account.left_ns(self.part) >= ns

    def pause_ns(self) -> int:
        debt_ns = -self._account.left_ns(self.part)
        return 0 if debt_ns <= 0 else round(min(debt_ns / self._account.rate(self.part), LONGEST_PAUSE_NS))


class _SampledWork(_Work):
    """A short call that stands for ``SAMPLED_CALLS`` like it."""

    def __init__(self, account: Account, allowance: PartAllowance) -> None:
        super().__init__(account)
        self._allowance = allowance

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._allowance.spent_ns += SAMPLED_CALLS * min(self.spent_ns, LONGEST_CALL_NS)


class _ThreadWork:
    """The context of work on another thread."""

    def __init__(self, account: Account, allowance: PartAllowance) -> None:
        self._account, self._allowance = account, allowance
        self._began_ns = 0

    def __enter__(self) -> None:
        self._began_ns = self._account.processor_ns()

    def __exit__(self, *_error: object) -> None:
        self._allowance.spent_ns += self._account.processor_ns() - self._began_ns


class Account:
    """Count the processor time of each part, and say what is left of it."""

    def __init__(self, processor_ns: Callable[[], int] = thread_time_ns) -> None:
        self.processor_ns = processor_ns
        """The processor time of the calling thread."""
        self.thread = get_ident()
        """The training thread. Work on another thread is counted whole."""
        self.inside: list[_Work] = []
        """The open work, the innermost last."""
        self.since_ns = self.entered_ns = 0
        """The processor time up to which it is counted, and that at which the outermost was entered."""
        self.budget: float | None = None
        self._now_ns: Callable[[], int] = perf_counter_ns
        self._opened_ns = 0
        self._parts = {part: PartAllowance(self, part) for part in Part}
        self.metered = [one for part, one in self._parts.items() if part not in (Part.START, Part.MARKS)]
        """The parts of the budget but the marks, which the frames count themselves."""
        self._before_end_ns: int | None = None

    def open(self, budget: float | None, now_ns: Callable[[], int]) -> None:
        """Hand the budget out from now on, of the time of this clock."""
        self.budget, self._now_ns, self._opened_ns = budget, now_ns, now_ns()

    def part(self, part: Part) -> PartAllowance:
        """Return the allowance of a part."""
        return self._parts[part]

    def work(self, part: Part) -> AbstractContextManager[object]:
        """Return the context of work of this part."""
        return self._parts[part].work()

    def count_open(self) -> None:
        """Count the open work up to now."""
        if self.inside:
            now_ns = self.processor_ns()
            self.inside[-1].spent_ns += now_ns - self.since_ns
            self.since_ns = now_ns

    def spent_ns(self, *parts: Part) -> int:
        """Return the cost of these parts so far, open work not included."""
        return sum(self._parts[part].spent_ns for part in parts)

    @property
    def metered_ns(self) -> int:
        """The cost of the metered parts."""
        return sum(map(SPENT_NS, self.metered))

    # The budget.

    def rate(self, *parts: Part) -> float:
        """Return the fraction of the run's time that these parts may take; infinity without a budget."""
        return inf if self.budget is None else self.budget * sum(TABLE[part].share for part in parts)

    def left_ns(self, *parts: Part) -> float:
        """Return the processor time that these parts may take now; below 0 where they have taken too much."""
        if self.budget is None:
            return inf
        if get_ident() == self.thread:
            self.count_open()
        elapsed_ns = self._now_ns() - self._opened_ns
        first_ns = sum(TABLE[part].first_ns for part in parts)
        spent_ns, all_ns = self.spent_ns(*parts), self.spent_ns(*TABLE)
        if any(TABLE[part].once for part in parts):
            return max(self.budget * elapsed_ns - all_ns, first_ns - spent_ns)
        most_ns = max(2 * self.budget * elapsed_ns, MOST_NS) - RESERVED_NS - all_ns
        return max(min(self.rate(*parts) * elapsed_ns + first_ns - spent_ns, most_ns), first_ns / 3 - spent_ns)

    # The end, for the reports.

    def begin_end(self) -> None:
        """Note that the end of the session begins."""
        self.count_open()
        self._before_end_ns = self.metered_ns

    @property
    def end_ns(self) -> int | None:
        """The cost of the end so far; None before it."""
        self.count_open()
        return None if self._before_end_ns is None else self.metered_ns - self._before_end_ns
