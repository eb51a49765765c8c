"""Split lines give the same values as matched lines, to the last bit."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest

from autoprof.logs import load_logs, log_file
from autoprof.logs.formats import _text
from autoprof.logs.formats.megatron import FORMAT as MEGATRON
from autoprof.logs.formats.text import FORMAT as TEXT
from autoprof.logs.line_database import LineDatabase
from autoprof.logs.line_splitting import SplitPlan, plan_split

FIXTURES = Path(__file__).parent / "fixtures"
LINES = 3000
Draw = random.Random


def _megatron(step: int, draw: Draw, loss: str | None = None, front: str = "") -> str:
    clock = f"2026-11-{20 + step // 3600 % 9:02} {step // 60 % 24:02}:{step % 60:02}:00.{draw.randrange(10**6):06}"
    return (
        f"{front} [{clock}] iteration {step:8d}/ 1000000 | consumed samples: {step * 256:12d} | "
        f"elapsed time per iteration (ms): {500 + 20 * draw.random():.1f} | "
        f"throughput per GPU (TFLOP/s/GPU): {300 * draw.random():.1f} | learning rate: {draw.random() / 1e4:.6E} | "
        f"lm loss: {loss or f'{draw.random():.6E}'} | loss scale: 65536.0 | grad norm: {draw.random():.3f} | "
        f"number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def plain(draw: Draw) -> Iterator[str]:
    """Lines of one form."""
    for step in range(LINES):
        yield _megatron(step, draw)


def another_form_in_mid_file(draw: Draw) -> Iterator[str]:
    """An update of the framework in the middle of a run: other fields, another order."""
    for step in range(LINES // 2):
        yield _megatron(step, draw)
    for step in range(LINES // 2, LINES):
        yield (
            f" [2026-11-21 10:00:00] iteration {step}/ 1000000 | lm loss: {draw.random():.6E} | "
            f"consumed samples: {step * 256} | consumed tokens: {step * 4096} | learning rate: 1.0E-04 | "
            f"elapsed time per iteration (s): {draw.random():.2f} | grad norm: {draw.random():.3f} |"
        )


def missing_fields(draw: Draw) -> Iterator[str]:
    """Lines without the gradient's norm, without a value, with one field twice, with one more."""
    for step in range(LINES):
        line = _megatron(step, draw)
        match step % 11:
            case 3:
                line = line.replace("grad norm", "")
            case 4:
                line = line[: line.index("| grad norm")]
            case 5:
                line = line.replace("loss scale: 65536.0", "loss scale: ")
            case 6:
                line += f" lm loss: {draw.random():.3f} |"
            case 7:
                line += f" params norm: {draw.random():.3f} | num zeros: {step} |"
        yield line


def values_of_all_kinds(draw: Draw) -> Iterator[str]:
    """Numbers as only some tools write them, and texts that look like numbers."""
    odd = (
        "nan", "NaN", "inf", "-inf", "-nan", "Infinity", "1_000", "1,024.5", "1,24", "+3.5", ".5", "5.", "1e5", "1e",
        "1E400", "--1", "0x10", "1.2.3", "tensor(2.5)", "2.5ms", "12 %", "1 000", "\t4.5", "", "none", "٣", "2.5k",
    )  # fmt: skip
    for step in range(LINES):
        yield _megatron(step, draw, odd[step % len(odd)] if step % 3 == 0 else None)


def never_finite(draw: Draw) -> Iterator[str]:
    """A run that diverged."""
    for step in range(LINES):
        yield _megatron(step, draw, "nan" if step > 100 else None)


def stray_lines(draw: Draw) -> Iterator[str]:
    """What other programs write between the records, and into them."""
    for step in range(LINES):
        line = _megatron(step, draw)
        yield {0: "", 5: "saving checkpoint at iteration 5", 7: line[:100] + line, 8: line[150:], 9: "   \t"}.get(
            step % 13, line
        )
        if step % 50 == 0:
            yield f"(min, max) time across ranks (ms): | batch-generator: ({draw.random():.2f}, 3.00)"
            yield f" validation loss at iteration {step} | lm loss value: {draw.random():.6E} | lm loss PPL: 9.1E+00 | "
            yield f"[Rank 0] (after {step} iterations) memory (MB) | allocated: 1674.3 | max allocated: 5663.7"


def other_spaces(draw: Draw) -> Iterator[str]:
    """Padding that changes: spaces, tabs and vertical tabs before, after and inside the names."""
    changes = (
        ("grad norm: ", "grad norm:"), ("grad norm: ", "grad norm:    "), ("grad norm: ", "grad norm:\t"),
        ("grad norm: ", "grad  norm: "), ("lm loss: ", "lm loss:\v"), (" | lm", " |  lm"), (" | lm", "| lm"),
        ("grad norm", "gradnorm"), ("| loss scale", "|loss scale"), ("0 |", "0"), ("/ 1000000", "/1000000"),
    )  # fmt: skip
    for step in range(LINES):
        old, new = changes[step // 4 % len(changes)] if step % 4 == 0 else ("", "")
        yield _megatron(step, draw).replace(old, new)


def interleaved_ranks(draw: Draw) -> Iterator[str]:
    """Every rank's lines in one file, behind the name of the rank, some of them torn into each other."""
    for step in range(LINES // 4):
        for rank in range(4):
            line = _megatron(step, draw, front=f"[rank{rank}]:")
            yield line if draw.random() > 0.02 else line[: draw.randrange(len(line))] + line


def megatron_deepspeed(draw: Draw) -> Iterator[str]:
    """Megatron-DeepSpeed: DeepSpeed's lines and timers between Megatron's."""
    for step in range(1, LINES // 3):
        yield (
            f"[2026-11-20 10:00:{step % 60:02},{draw.randrange(1000):03}] [INFO] [logging.py:96:log_dist] [Rank 0] "
            f"step={step}, skipped=0, lr=[{draw.random():.6e}, 1e-05], mom=[(0.9, 0.95), (0.9, 0.95)]"
        )
        yield (
            f"[2026-11-20 10:00:{step % 60:02},{draw.randrange(1000):03}] [INFO] [timer.py:199:stop] 0/{step}, "
            f"RunningAvgSamplesPerSec={draw.random() * 100}, CurrSamplesPerSec={draw.random() * 100}, "
            f"MemAllocated=0.33GB, MaxMemAllocated=2.92GB"
        )
        yield (
            f" iteration {step:8d}/  500000 | consumed samples: {step * 256:12d} | consumed tokens: {step * 524288:12d}"
            f" | elapsed time per iteration (ms): {5000 * draw.random():.1f} | learning rate: {draw.random():.3E} | "
            f"global batch size:   256 | lm loss: {draw.random():.6E} | moe loss: {draw.random():.6E} | loss scale: 1.0"
            f" | grad norm: {draw.random():.3f} | actual seqlen:  2048 | number of skipped iterations:   0 | "
            f"number of nan iterations:   0 | samples per second: {draw.random():.3f} | TFLOPs: {draw.random():.2f} |"
        )
        yield f"time (ms) | forward-compute: {draw.random():.2f} | backward-compute: {draw.random():.2f} | batch: 1.5"


def not_of_megatron(draw: Draw) -> Iterator[str]:
    """A loop's own lines, with a comma between fields, units, a clock and a number with commas."""
    for step in range(LINES):
        yield (
            f"2026-11-20 10:{step // 60 % 60:02}:{step % 60:02} INFO epoch {step // 1000} [{step % 1000}/1000], "
            f"loss: {draw.random():.4f}, val loss: {draw.random():.4f}, dt: {draw.random() * 300:.2f}ms, "
            f"tok/sec: {draw.randrange(10**6):,}, lr 3.0e-{draw.randrange(1, 9):02}, mem: {draw.random():.1f}GiB(1%), "
            f"eta: {step % 24}:00:00"
        )


def signs_of_all_kinds(draw: Draw) -> Iterator[str]:
    """What SQL and expressions would take for their own, and words of other scripts."""
    for step in range(LINES):
        yield (
            f"步 {step} it's $^.*?{{}}\\ \f | 损失: {draw.random():.4f} | lr\": {draw.random():.2e} | 'dt': "
            f"{draw.random():.3f}s | grad_norm=({draw.random():.3f}) | c++ 100%_x: {draw.random():.1f} |"
        )


CASES = (
    plain, another_form_in_mid_file, missing_fields, values_of_all_kinds, never_finite, stray_lines, other_spaces,
    interleaved_ranks, megatron_deepspeed, not_of_megatron, signs_of_all_kinds,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read small blocks: plans from the first are used in the later ones."""
    monkeypatch.setattr(log_file, "BLOCK_BYTES", 200_000)


def _matched(path: Path) -> pd.DataFrame:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_text, "plan_split", lambda *_: None)
        return load_logs(path)


def _same(path: Path) -> pd.DataFrame:
    df, matched = load_logs(path), _matched(path)
    pd.testing.assert_frame_equal(df, matched, check_exact=True)
    assert df.attrs == matched.attrs
    return df


@pytest.fixture
def split(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of lines that each plan removed from a block."""
    taken: list[int] = []
    real = LineDatabase.split

    def spy(self: LineDatabase, plan: SplitPlan, record: str, keep: bool = False) -> pd.DataFrame:
        part = real(self, plan, record, keep)
        taken.append(0 if keep else len(part))
        return part

    monkeypatch.setattr(LineDatabase, "split", spy)
    return taken


@pytest.mark.parametrize("lines", CASES, ids=lambda case: case.__name__.replace("_", " "))
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_split_lines_equal_matched_lines(
    tmp_path: Path, lines: Callable[[Draw], Iterator[str]], end: str, split: list[int]
) -> None:
    """With any text in a log, table and report are the same, and lines were split."""
    path = tmp_path / "log"
    path.write_bytes(end.join(lines(Draw(0))).encode())
    df = _same(path)
    assert len(df) > LINES // 5
    assert sum(split) > LINES // 5


def test_an_incomplete_last_line_is_read_the_same_either_way(tmp_path: Path) -> None:
    """A log cut off anywhere in its last line reads the same either way."""
    whole = "\n".join(plain(Draw(1)))
    last = len(whole) - whole.rindex("\n")
    for at in range(1, last, 23):
        (tmp_path / "log").write_text(whole[:-at])
        _same(tmp_path / "log")


def test_most_lines_of_a_long_log_are_split(tmp_path: Path, split: list[int]) -> None:
    """Only the first block is matched, and lines that do not fit."""
    path = tmp_path / "log"
    path.write_text("\n".join(plain(Draw(0))))
    df = load_logs(path)
    assert len(df) == LINES
    assert sum(split) > 0.75 * LINES


@pytest.mark.parametrize("file", sorted(FIXTURES.glob("*.log")), ids=lambda file: file.name)
def test_every_fixture_is_read_the_same_either_way(tmp_path: Path, file: Path) -> None:
    """The fixtures, made long by repeating them, read the same either way."""
    content = file.read_bytes()
    path = tmp_path / "log"
    path.write_bytes(content * (1 + 600_000 // len(content)))
    _same(path)


def test_a_plan_that_differs_from_the_expressions_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line of the block with another value is enough."""
    path = tmp_path / "log"
    path.write_text("\n".join(plain(Draw(0))))
    matched = _matched(path)

    def wrong(line: str, form: object, parse_line: object) -> SplitPlan | None:
        plan = plan_split(line, form, parse_line)  # type: ignore[arg-type]
        assert plan is not None
        query = plan.query.replace("try_cast(v2 as double)", "case when n = 7 then 1 else try_cast(v2 as double) end")
        assert query != plan.query
        return SplitPlan(plan.form, query)

    monkeypatch.setattr(_text, "plan_split", wrong)
    pd.testing.assert_frame_equal(load_logs(path), matched, check_exact=True)


def test_a_line_without_separators_has_no_plan() -> None:
    """Prose with numbers is matched as it always was."""
    line = "step 5 loss 2.5 lr 0.1 time 3.0"
    form = TEXT.form(line)
    assert form is not None
    assert plan_split(line, form, TEXT.form) is None


def test_a_number_whose_unit_depends_on_its_value_has_no_plan() -> None:
    """A plan is only for lines whose form does not depend on their numbers."""
    line = _megatron(1, Draw(0))
    form = MEGATRON.form(line)
    assert form is not None
    assert plan_split(line, form, MEGATRON.form) is not None
    assert plan_split(line, form, lambda text: None if "12345.678" in text else MEGATRON.form(text)) is None
