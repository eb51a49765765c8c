"""The steps that the lines of a rank's records have, without their times: which, how long, and where the times are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .._storage.span_blocks import MAX_NS
from .._storage.steps_jsonl import BAD_LINE, read_layout
from ..frame import MODULE_PHASES, Layout, Nanoseconds, Phase
from .record import RANK_SCALARS

MAX_STEP: Final = 2**53
Column = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class StepHeads:
    """The recorded steps of one rank in ascending order, without warm-up; one entry a step.

    The times of a step are in ``files[file]`` at ``block``, row ``place``, with the layout of that number; where
    ``block`` is negative, they are in the line, number ``place`` of ``inline``.
    """

    files: tuple[str, ...]
    steps: Nanoseconds
    step_ns: Nanoseconds
    file: Nanoseconds
    layout: Nanoseconds
    block: Nanoseconds
    place: Nanoseconds
    on_device: npt.NDArray[np.bool_]
    overhead_ns: Nanoseconds
    model_ns: Mapping[Phase, Nanoseconds]
    """-1 in a step without."""
    scalars: Mapping[str, npt.NDArray[np.float64]]
    """NaN in a step without."""
    inline: tuple[str, ...]
    first_unix_ns: int
    last_unix_ns: int
    bad_lines: int
    foreign_lines: int
    """Lines of JSON that are no steps with times: of another program or version."""

    def __len__(self) -> int:
        return len(self.steps)


class Layouts:
    """The layouts of all ranks, which mostly have the same ones; each is parsed once and has a number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self.found: list[Layout] = []

    def number(self, text: str) -> int:
        """Return the number of the layout with this JSON text, -1 for a text that is none."""
        number = self._numbers.get(text)
        if number is None:
            try:
                layout = read_layout(json.loads(text))
            except BAD_LINE:
                number = -1
            else:
                number = len(self.found)
                self.found.append(layout)
            self._numbers[text] = number
        return number


def read_heads(lines: Mapping[str, Column], files: Sequence[str], layouts: Layouts) -> StepHeads:
    """Return the steps of one rank, from the lines of its ``files``."""
    parts = []
    for number, name in enumerate(files):
        own = np.flatnonzero(lines["filename"] == name) if len(files) > 1 else slice(None)
        columns = {key: column[own] for key, column in lines.items()}
        parts.append((np.full(len(columns["step"]), number), columns, _layout_numbers(columns, layouts)))
    columns = {key: np.concatenate([part[1][key] for part in parts]) for key in lines if key != "filename"}
    file, layout = (np.concatenate([part[at] for part in parts]) for at in (0, 2))
    step, step_ns, block, place = (columns[key] for key in ("step", "step_ns", "block", "place"))
    texts = columns["spans"]
    is_inline = texts != np.array(None)
    inline = np.cumsum(is_inline) - 1
    whole = (step >= 0) & (step <= MAX_STEP) & (step_ns >= 0) & (step_ns <= MAX_NS) & (layout >= 0)
    whole &= ((block >= 0) & (place >= 0)) | is_inline
    is_json = (step >= 0) | (step_ns >= 0)
    counted = np.flatnonzero(whole & ~columns["warmup"])
    _, at = np.unique(step[counted], return_index=True)
    kept = counted[at]
    starts = columns["start_unix_ns"][kept]
    return StepHeads(
        files=tuple(files),
        steps=step[kept],
        step_ns=step_ns[kept],
        file=file[kept],
        layout=layout[kept],
        block=np.where(is_inline, -1, block)[kept],
        place=np.where(is_inline, inline, place)[kept],
        on_device=columns["on_device"][kept],
        overhead_ns=columns["overhead_ns"][kept].clip(0, MAX_NS),
        model_ns={phase: ns for phase in MODULE_PHASES if (ns := _model_ns(columns, phase)[kept]).max(initial=-1) >= 0},
        scalars={name: values for name in RANK_SCALARS if np.isfinite(values := columns[name][kept]).any()},
        inline=tuple(texts[is_inline].tolist()),
        first_unix_ns=int(starts.min(initial=2**62)),
        last_unix_ns=int(starts.max(initial=-1)),
        bad_lines=int((~is_json).sum()),
        foreign_lines=int((is_json & ~whole).sum()),
    )


def _model_ns(columns: Mapping[str, Column], phase: Phase) -> Nanoseconds:
    found: Nanoseconds = columns[f"model_{phase}"].clip(-1, MAX_NS)
    return found


def _layout_numbers(columns: Mapping[str, Column], layouts: Layouts) -> Nanoseconds:
    """Return the number of each line's layout: of the line that has the names under the same ``layout_id``."""
    ids, texts = columns["layout_id"], columns["layout"]
    known = {int(ids[at]): layouts.number(texts[at]) for at in np.flatnonzero(texts != np.array(None))}
    distinct, inverse = np.unique(ids, return_inverse=True)
    numbers = np.array([known.get(id_, -1) if id_ >= 0 else -1 for id_ in distinct.tolist()], dtype=np.int64)
    return numbers[inverse] if len(ids) else np.zeros(0, dtype=np.int64)
