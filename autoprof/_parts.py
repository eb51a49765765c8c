"""Work in parts: generators that yield between the parts, so that a short training step has one of them at its end."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TypeVar

ResultT = TypeVar("ResultT")


def run_parts(parts: Generator[object, None, ResultT]) -> ResultT:
    """Do all parts at once; return the result of the generator."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            result: ResultT = end.value
            return result


def exhaust(parts: Iterable[object]) -> None:
    """Do all parts at once."""
    for _ in parts:
        pass
