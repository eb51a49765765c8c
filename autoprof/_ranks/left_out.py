"""The list of the files and steps that a comparison of ranks does not use, with the reasons."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A rank, or a folder, whose files are not used; ``partly`` where the rest of it is used."""

    where: str
    why: str
    partly: bool = False
    rank: int | None = None

    @classmethod
    def of_rank(cls, rank: int, why: str, *, partly: bool = False) -> LeftOut:
        """Return the entry of one rank."""
        return cls(f"rank {rank}", why, partly, rank)
