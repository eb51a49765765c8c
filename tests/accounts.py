"""The account of a run whose clocks only the test lets pass."""

from __future__ import annotations

from autoprof.base.allowance import Allowance
from autoprof.session.account import Account, Part


class FakeRun:
    """A run with an account, a clock, and a clock of processor time."""

    def __init__(self, budget: float | None = 0.01) -> None:
        self.now_ns = self.processor_ns = 0
        self.account = Account(lambda: self.processor_ns)
        self.account.open(budget, lambda: self.now_ns)

    def work(self, part: Part, ns: int) -> None:
        """Do so much work of a part."""
        with self.account.work(part):
            self.processor_ns += ns


def unlimited() -> Allowance:
    """Return the allowance of a part of an account without a budget."""
    return FakeRun(None).account.part(Part.STEPS)
