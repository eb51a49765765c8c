"""Options of ``python -m benchmarks``."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from .workloads import BUILDERS, CLOCKS

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True, slots=True)
class Options:
    """One run of the benchmarks."""

    models: tuple[str, ...]
    size: str
    rounds: int
    threads: int
    clock: str
    output: Path
    quick: bool
    parts: tuple[str, ...]
    report: Path | None


PARTS = ("always_on", "models", "micro", "identical")


def parse(arguments: list[str] | None = None) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the cost of autoprof.")
    parser.add_argument(
        "--quick", action="store_true", help="a look in some minutes; a full run takes more than an hour"
    )
    parser.add_argument("--models", default=",".join(BUILDERS), help="which models, by comma (default: %(default)s)")
    parser.add_argument(
        "--size", choices=("tiny", "small"), help="of the reference workload (default: small; quick: tiny)"
    )
    parser.add_argument("--parts", default=",".join(PARTS), help="which parts, by comma (default: %(default)s)")
    parser.add_argument("--rounds", type=int, help="turns of each variant (default: 60; quick: 4)")
    parser.add_argument("--threads", type=int, default=1, help="torch's CPU threads (default: %(default)s)")
    parser.add_argument(
        "--clock", choices=tuple(CLOCKS), default="wall", help="wall: the time users wait; cpu: for a busy machine"
    )
    parser.add_argument(
        "--output", type=Path, default=RESULTS, help="folder for JSON and plot (default: benchmarks/results)"
    )
    parser.add_argument(
        "--report", type=Path, metavar="JSON", help="measure nothing: render an earlier run's JSON again"
    )
    given = parser.parse_args(arguments)
    models, parts = (
        _words(parser, "--models", given.models, tuple(BUILDERS)),
        _words(parser, "--parts", given.parts, PARTS),
    )
    if given.rounds is not None and given.rounds < 1:
        parser.error("--rounds: must be at least 1")
    return Options(
        models=models,
        size=given.size or ("tiny" if given.quick else "small"),
        rounds=given.rounds or (4 if given.quick else 60),
        threads=given.threads,
        clock=given.clock,
        output=given.output,
        quick=given.quick,
        parts=parts,
        report=given.report,
    )


def _words(parser: argparse.ArgumentParser, flag: str, text: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
    words = tuple(word for word in text.split(",") if word)
    for word in words:
        if word not in allowed:
            parser.error(f"{flag}: {word!r} is none of them; allowed: {', '.join(allowed)}")
    return words
