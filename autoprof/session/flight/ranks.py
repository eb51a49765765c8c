"""The last states of all ranks of a run, as a table, and the ranks that stand out among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from ...base.names import visible
from ...base.units import NS_PER_S, count, format_ns, format_span
from .ring import FILE, Flight, State, read_flight

HANG_REPORT: Final = "hang.txt"
"""The report of a hang, in the folder of a rank; that of all ranks lies in the folder of the run."""
MAX_LINES: Final = 32
"""Ranks in the table; of more, those that stand out and the first ones."""
HEAD: Final = ("rank", "steps", "usual", "open step", "last sign", "state", "line")
"""The head of the table."""


@dataclass(frozen=True, slots=True)
class RankLine:
    """The last state of one rank; without a readable file only the reason."""

    rank: int
    flight: Flight | None
    why: str = ""

    @property
    def waits(self) -> bool:
        """Whether the rank waited for another one."""
        return self.flight is not None and bool(self.flight.text.get("waits"))

    def doing(self) -> str:
        """Phrase the last known work of the rank."""
        flight = self.flight
        if flight is None:
            return self.why
        if flight.state is State.CLOSED:
            return "closed its session"
        text = flight.text
        if flight.state is State.EXCLUDED:
            return "outside of steps (validation, saving, a pause)"
        if text.get("excluded"):
            return f"outside of steps ({text['excluded']})"
        place = ", ".join(str(part) for part in (text.get("module"), text.get("phase")) if part)
        if self.waits:
            call = text.get("collective")
            return f"waits in {call or 'backward'}" + (f" ({place})" if place and call and place != "comm" else "")
        call = text.get("call")
        return (place or "in Python") + (f": {call}" if call else "")

    def site(self) -> str:
        """Return the line of the program."""
        return "" if self.flight is None else visible(str(self.flight.text.get("site") or ""))


def rank_lines(run: Path, world_size: int) -> list[RankLine]:
    """Read the files of all ranks; of a run that has none, return none."""
    lines = []
    for rank in range(world_size):
        path = run / f"rank{rank}" / FILE
        try:
            lines.append(RankLine(rank, read_flight(path)))
        except FileNotFoundError:
            lines.append(RankLine(rank, None, "no file here: on another machine, or it never began"))
        except (OSError, ValueError) as error:
            lines.append(RankLine(rank, None, f"its file cannot be read ({type(error).__name__})"))
    return lines if any(line.flight is not None for line in lines) else []


def last_states(run: Path, world_size: int) -> list[RankLine]:
    """Return the last states of a run's ranks where one of them was not closed, or a hang was reported."""
    lines = rank_lines(run, world_size)
    left_open = any(line.flight is not None and line.flight.state is not State.CLOSED for line in lines)
    return lines if left_open or (run / HANG_REPORT).exists() else []


def standing_out(lines: Sequence[RankLine]) -> tuple[list[int], str]:
    """Return the ranks that the others wait for, as far as the states show them, and the reason."""
    known = {line.rank: line.flight for line in lines if line.flight is not None}
    if len(lines) < 2 or not known:
        return [], ""
    last = {rank: flight.last_unix_ns for rank, flight in known.items()}
    latest, steps = max(last.values()), median(flight.steps for flight in known.values())
    # A rank whose last sign is so much older than that of the others ended before them.
    early = [rank for rank, ns in last.items() if latest - ns > 3 * NS_PER_S]
    waits = {line.rank for line in lines if line.waits}
    reasons: list[tuple[str, list[int]]] = [
        ("ended without closing the session", [rank for rank, flight in known.items() if flight.is_running is False]),
        ("closed the session before the others", [r for r in early if known[r].state is State.CLOSED]),
        ("gave the last sign of life before the others", early),
    ]
    if any(_is_stuck(flight) for flight in known.values()):
        reasons += [
            ("did not wait, and the others waited", [rank for rank in known if rank not in waits]),
            ("ended fewer steps than the others", [rank for rank, flight in known.items() if flight.steps < steps]),
        ]
    if missing := [line.rank for line in lines if line.flight is None]:
        return missing, "left no file here"
    return next(((ranks, why) for why, ranks in reasons if 0 < len(ranks) < len(known)), ([], ""))


def _is_stuck(flight: Flight) -> bool:
    """Return whether the open step was much longer than usual at the last sign of life."""
    # An open step of three times the usual length shows that a rank waits for long.
    return flight.last_unix_ns - flight.began_unix_ns > max(3 * flight.usual_ns, NS_PER_S)


def describe_ranks(lines: Sequence[RankLine], width: int = 100) -> tuple[str, list[str]]:
    """Return one sentence on the last states, and the lines of their table."""
    ranks, why = standing_out(lines)
    return _verdict(lines, ranks, why), _table(lines, ranks, why, width)


def _verdict(lines: Sequence[RankLine], ranks: Sequence[int], why: str) -> str:
    max_named = 4
    if not lines:
        return "no rank left a file"
    line = next((line for line in lines if line.rank in ranks), lines[0])
    doing = line.doing() + (f" at {line.site()}" if line.site() else "")
    if ranks:
        named = ", ".join(map(str, ranks[:max_named])) + (", …" if len(ranks) > max_named else "")
        return f"rank {named} {why}" + (f": {doing}" if line.flight is not None else "")
    if len(lines) == 1:
        return doing
    common, number = Counter(line.doing() for line in lines).most_common(1)[0]
    return f"no rank stands out; {number} of {len(lines)} ranks: {common}"


def _table(lines: Sequence[RankLine], marked: Sequence[int], why: str, width: int) -> list[str]:
    """Return the lines of the table: of many ranks those that stand out, and the first ones."""
    chosen = sorted(lines, key=lambda line: (line.rank not in marked, line.rank))[:MAX_LINES]
    latest = max((line.flight.last_unix_ns for line in lines if line.flight is not None), default=0)
    rows = [HEAD, *(_cells(line, latest, line.rank in marked) for line in sorted(chosen, key=lambda one: one.rank))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = []
    for row in rows:
        parts = [cell.rjust(widths[at]) if 0 < at < 5 else cell.ljust(widths[at]) for at, cell in enumerate(row)]
        table.append("  ".join(parts)[:width].rstrip())
    if why:
        table.append(f"* {why}")
    if len(lines) > MAX_LINES:
        table.append(f"and {count(len(lines) - MAX_LINES, 'more rank')}")
    return table


def _cells(line: RankLine, latest_unix_ns: int, marked: bool) -> tuple[str, ...]:
    flight, name = line.flight, f"{line.rank}{' *' if marked else ''}"
    if flight is None:
        return name, "", "", "", "", line.doing(), ""
    open_ns = max(flight.last_unix_ns - flight.began_unix_ns, 0)
    age_ns = latest_unix_ns - flight.last_unix_ns
    return (
        name,
        f"{flight.steps:,}",
        format_ns(flight.usual_ns) if flight.usual_ns else "",
        "" if flight.state is State.CLOSED else format_span(open_ns),
        f"-{format_span(age_ns)}" if age_ns >= NS_PER_S // 20 else "0",
        line.doing(),
        line.site(),
    )
