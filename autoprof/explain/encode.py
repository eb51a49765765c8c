"""An explanation as JSON of at most 4 kB: a program that reads many runs, or a language model, pays by length."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final, NamedTuple

from .._names import shorten, visible
from .data import CodePlace, ComparedRanks, ExplainedCause, Explanation, Trial

MAX_BYTES: Final = 4_000
"""The most bytes of the JSON in UTF-8, with the newline at its end."""


MAX_ABSENT: Final = 4
"""Ranks without records that are named, times the causes but one."""


class Room(NamedTuple):
    """The most characters of a text and of a name, and the most entries of each list."""

    text: int
    name: int
    causes: int
    unmeasured: int


ROOMS: Final = (
    Room(400, 300, 5, 12),
    Room(300, 200, 4, 10),
    Room(240, 160, 3, 8),
    Room(160, 120, 3, 5),
    Room(120, 80, 2, 4),
    Room(80, 60, 1, 2),
    Room(40, 40, 1, 0),
)
"""From generous to tight; the first that fits is used. In the last all characters may be of four bytes."""


def encode(explanation: Explanation) -> str:
    """Return the JSON on one line, at most ``MAX_BYTES`` with a newline; cut texts end in an ellipsis."""
    text = ""
    for room in ROOMS:
        text = json.dumps(_fitted(explanation, room).to_dict(), ensure_ascii=False, separators=(",", ":"))
        if len(text.encode()) < MAX_BYTES:
            break
    return text


def _fitted(full: Explanation, room: Room) -> Explanation:
    causes = tuple(_cause(one, room) for one in full.causes[: room.causes])
    unmeasured = tuple(
        replace(
            one,
            missing=_cut(one.missing, room.text // 2),
            remedy=_cut(one.remedy, room.text // 2),
            rules=tuple(_cut(rule, 40) for rule in one.rules[:8]),
        )
        for one in full.unmeasured[: room.unmeasured]
    )
    return replace(
        full,
        run=_cut(full.run, room.name),
        causes=causes,
        unmeasured=unmeasured,
        doubts=tuple(_cut(one, room.text // 2) for one in full.doubts[: room.causes]),
        more_causes=full.more_causes + len(full.causes) - len(causes),
        more_unmeasured=full.more_unmeasured + len(full.unmeasured) - len(unmeasured),
        ranks=_ranks(full.ranks, room),
    )


def _ranks(full: ComparedRanks | None, room: Room) -> ComparedRanks | None:
    """Return the first of the slow ranks; in the tightest rooms, only their rule's finding names them."""
    if full is None:
        return None
    slow = tuple(replace(one, name=_cut(one.name, room.name)) for one in full.slow[: room.causes - 1])
    return replace(full, absent=full.absent[: MAX_ABSENT * (room.causes - 1)], slow=slow)


def _cause(one: ExplainedCause, room: Room) -> ExplainedCause:
    place, trial = one.place, one.experiment
    return replace(
        one,
        rule=_cut(one.rule, 40),
        cause=_cut(one.cause, room.text),
        place=CodePlace(
            place.phase,
            _name(place.name, room),
            _name(place.module, room),
            _name(place.class_name, room),
            _name(place.file, room),
            place.line,
            _name(place.function, room),
            _name(place.call, room),
            place.rank,
        ),
        experiment=Trial(
            replace(trial.change, target=_name(trial.change.target, room)), _cut(trial.advice, room.text), trial.expect
        ),
    )


def _cut(text: str, limit: int) -> str:
    return shorten(visible(text), limit)


def _name(name: str | None, room: Room) -> str | None:
    return None if name is None else _cut(name, room.name)
