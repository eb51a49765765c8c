"""The faults: the part made slow, its rank and its steps; each is drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

RANKS: Final = 4
MODULES: Final = ("first", "middle", "last")
"""The modules that a fault may be in."""
PATTERNS: Final = ("persistent", "recurring", "one-off")
KINDS: Final = ("loader", "forward", "backward", "optimizer", "pause", "collection", "batches", "dead")
STEPS: Final = 100
FIRST_STEP: Final = 12
"""The first step that a fault may be in: warm-up steps are in no statistic."""
PERSISTENT_S: Final = (0.012, 0.036)
"""Seconds that a persistent fault adds to a step, a quarter to four fifths of it; …"""
RECURRING_S: Final = (0.09, 0.18)
PERIODS: Final = (4, 9)
ONE_OFF_S: Final = (0.6, 1.2)
LARGER: Final = (2.0, 3.0)
"""… the size of a larger batch, in usual ones."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. ``steps`` are the numbers of the slow steps, from 1; empty for all. ``amount`` is in seconds, or the
    size of a batch."""

    kind: str
    pattern: str
    rank: int
    amount: float
    module: str | None = None
    steps: tuple[int, ...] = ()

    def hits(self, step: int) -> bool:
        """Return whether a step is slow."""
        return not self.steps or step in self.steps

    @property
    def phase(self) -> str | None:
        """The phase that has the fault; None where it may be any."""
        return {"loader": "data", "forward": "forward", "backward": "backward", "optimizer": "optimizer"}.get(self.kind)


@dataclass(frozen=True, slots=True)
class Run:
    """One training: its number, the seed of its noise, its form, and its fault."""

    number: int
    seed: int
    form: str = "ddp"
    steps: int = STEPS
    fault: Fault | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


def draw_fault(draw: random.Random, kind: str, pattern: str, steps: int = STEPS) -> Fault:
    """Return a fault of a kind; a pause and a dead rank are no persistent ones."""
    if kind == "dead":
        return Fault(kind, "one-off", draw.randrange(1, RANKS), 0.0, None, (draw.randrange(FIRST_STEP, steps - 5),))
    rank = draw.randrange(RANKS)
    module = draw.choice(MODULES) if kind in ("forward", "backward") else None
    if pattern == "recurring":
        period = draw.randint(*PERIODS)
        slow = tuple(range(draw.randrange(FIRST_STEP, FIRST_STEP + period), steps, period))
        seconds = draw.uniform(*RECURRING_S)
    elif pattern == "one-off":
        slow, seconds = (draw.randrange(FIRST_STEP, steps - 5),), draw.uniform(*ONE_OFF_S)
    else:
        slow, seconds = (), draw.uniform(*PERSISTENT_S)
    if kind == "batches":
        seconds = draw.uniform(*LARGER) * {"persistent": 1, "recurring": 2, "one-off": 15}[pattern]
    return Fault(kind, pattern, rank, seconds, module, slow)


def draw_runs(faults: int, healthy: int, seed: int | str, kinds: tuple[str, ...] = KINDS) -> list[Run]:
    """Return the runs, in an order that mixes kinds, patterns and healthy runs."""
    draw = random.Random(seed)
    cells = list(_cells(kinds))
    draw.shuffle(cells)
    chosen: list[Fault | None] = [draw_fault(draw, *cells[number % len(cells)]) for number in range(faults)]
    chosen += [None] * healthy
    draw.shuffle(chosen)
    return [Run(number, draw.randrange(2**31), fault=fault) for number, fault in enumerate(chosen)]


def _cells(kinds: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield each kind with each pattern that it can have."""
    for pattern in PATTERNS:
        for kind in kinds:
            if (kind == "pause" and pattern == "persistent") or (kind == "dead" and pattern != "one-off"):
                continue
            yield kind, pattern
