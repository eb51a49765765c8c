"""What a reader of a comparison has to know beside its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .._units import format_count, format_percent
from ..summary import Clock
from .data import RunNote
from .series import RunSeries


def notes_of(
    a: Sequence[RunSeries],
    b: Sequence[RunSeries],
    clock: Clock | None,
    margin: float,
    work: tuple[float | None, float | None] | None,
) -> tuple[str, ...]:
    """Return the notes; ``work`` has the samples a step of both sides where they differ."""
    return tuple(_notes([run.note for run in a], [run.note for run in b], clock, margin, work))


def _notes(
    a: Sequence[RunNote],
    b: Sequence[RunNote],
    clock: Clock | None,
    margin: float,
    work: tuple[float | None, float | None] | None,
) -> Iterator[str]:
    if len(a) == len(b) == 1:
        yield "one run a side: the intervals do not know how runs of one program differ; several a side (--a, --b) tell"
    if {run.path for run in a} & {run.path for run in b}:
        yield "the same run is on both sides"
    if clock is None:
        yield (
            "one side has a device's clock, the other has not: their modules and phases cannot be compared; "
            "the whole step is the host's on both sides"
        )
    if work is not None:
        counts = " and ".join(format_count(count or 0) for count in work)
        yield f"{counts} samples a step: the steps are not the same work, only the throughput counts for a limit"
    for side, runs in (("A", a), ("B", b)):
        for run in runs:
            yield from (f"{side}: {run.path} {what}" for what in _of_run(run))
    shares = [[run.overhead for run in side if run.overhead is not None] for side in (a, b)]
    if all(shares):
        mean_a, mean_b = (sum(side) / len(side) for side in shares)
        if abs(mean_a - mean_b) > margin / 2:
            yield (
                f"autoprof itself took {format_percent(mean_a)} of A and {format_percent(mean_b)} of B: "
                "part of a difference may be that"
            )


def _of_run(run: RunNote) -> Iterator[str]:
    if run.ended is None:
        yield "was not closed (it was killed, or still runs): its records so far are compared"
    elif run.ended != "closed":
        yield f"ended early ({run.ended}): its records are compared"
    if run.bad_lines:
        yield f"has {_counted(run.bad_lines, 'record')} that cannot be read; left out"
    if run.untimed:
        yield f"has {_counted(run.untimed, 'step')} without a device time; left out"
    if run.stride > 1:
        yield f"is long: of its recorded steps each {run.stride}th is compared"


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" + ("" if count == 1 else "s")
