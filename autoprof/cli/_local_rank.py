"""The rank option of some launchers."""

from __future__ import annotations

from typing import Final

LOCAL_RANK: Final = ("--local_rank", "--local-rank")
"""Options that the launchers of DeepSpeed and ``torch.distributed.launch`` put before a program's own arguments."""


def move_local_rank(given: list[str]) -> list[str]:
    """Return the arguments with the launcher's option behind ``run``; a launcher puts it behind the module's name."""
    first = given[0] if given else ""
    if given[1:2] == ["run"] and first.startswith(tuple(f"{option}=" for option in LOCAL_RANK)):
        return ["run", first, *given[2:]]
    return given
