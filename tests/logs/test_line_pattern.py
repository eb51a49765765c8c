"""The expression for the lines of a form gives what splitting a line at its numbers gives, or no match."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from autoprof.logs.line_forms import NUMBER_IN_LINE, plain_line
from autoprof.logs.line_pattern import compile_line

CORPUS = Path(__file__).parent / "corpus"
NUMBERS = (
    "7",
    "-5",
    "+3",
    "nan",
    "-inf",
    "1,234",
    "1,2345",
    ".5",
    "5.",
    "1e5",
    "-1.5E-07",
    "12a",
    "",
    "x",
    "0.1.2",
    "- 3",
)
LINES = (
    "step 10 | loss: 2.5",
    "  step 10 |  loss: 2.5  ",
    "2026-11-20 10:00:00,123 INFO iter 3: loss -0.5, lr 1.0e-04, dt 12ms",
    "2026-11-20T10:00:00 step=3 loss=--0.5",
    "a-1 b+-2 c:+3 d=e-5 -7",
    "-5 +3 .5",
    "[1][50/1251] loss1 0.5 (0.6) 12% 3.5it/s",
    "x=1,y=2,z=1,234",
    "10%|█   | 5/50 [00:10<01:30, 2.00it/s, loss=0.5]",
)


def _agrees(pieces: list[str], text: str) -> bool | None:
    """Return whether the expression of a line agrees with the split of ``text``; None if it does not match."""
    pattern = compile_line(pieces)
    found = None if pattern is None else pattern.fullmatch(text)
    if found is None:
        return None
    split = NUMBER_IN_LINE.split(plain_line(text))
    return split[::2] == pieces[::2] and split[1::2] == list(found.groups())


def _pieces(text: str) -> list[str] | None:
    line = plain_line(text)
    pieces = NUMBER_IN_LINE.split(line)
    return pieces if len(pieces) > 1 and " ".join(text.split()) == line else None


@pytest.mark.parametrize("line", LINES)
def test_changed_numbers_are_read_as_by_a_split(line: str) -> None:
    """Also numbers that eat a sign, a comma or a point of the text around them."""
    pieces = _pieces(line)
    if pieces is None:
        return
    draw = random.Random(line)
    for _ in range(300):
        numbers = [draw.choice([*NUMBERS, number]) for number in pieces[1::2]]
        text = "".join(part for pair in zip(pieces[::2], [*numbers, ""], strict=True) for part in pair)
        text = text.replace(" ", draw.choice([" ", "  ", "\t"]))
        assert _agrees(pieces, text) is not False, text


def test_lines_of_real_formats_are_read_as_by_a_split() -> None:
    """Of every log of the corpus, and most lines of a form match the expression of its first one."""
    matched = tried = 0
    for path in sorted(CORPUS.glob("*/*")):
        if path.suffix in (".yaml", ".json") or path.stat().st_size > 100_000:
            continue
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[-16:]
        for first, text in pairwise(lines):
            pieces = _pieces(first)
            if pieces is None or len(text) > 2000:
                continue
            agrees = _agrees(pieces, text)
            assert agrees is not False, (path, text)
            same = NUMBER_IN_LINE.split(plain_line(text))[::2] == pieces[::2] and compile_line(pieces) is not None
            tried += same
            matched += bool(agrees) and same
    assert tried > 300
    assert matched == tried


@pytest.mark.parametrize("text", ["step T3", "2026-11-20T10:00:00 loss 1", "loss: +-5", "|  | 5 %| 6", "- 5 -"])
def test_an_uncertain_line_has_no_expression(text: str) -> None:
    """Signs, dates and progress bars change with the text around them."""
    assert compile_line(NUMBER_IN_LINE.split(text)) is None or _agrees(NUMBER_IN_LINE.split(text), text) is not False
