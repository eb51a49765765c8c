"""Compare what ``load_logs`` returns with what is true in a log."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from autoprof.errors import AutoprofError
from autoprof.logs import load_logs

CORPUS = Path(__file__).resolve().parent / "corpus"
CLAIMS = (
    "loss", "val_loss", "step_time_s", "data_time", "steps_per_s", "throughput", "tokens_per_s", "lr", "grad_norm",
    "memory", "gpu_util", "mfu", "tflops",
)  # fmt: skip
"""Columns of which a value is a claim: one that the truth does not have is wrong."""
TOLERANCE = 1e-4
"""Relative difference between a printed number and the number that is read, its unit converted."""


@dataclass
class Verdict:
    """What was read of one log: the number of absent values, and the wrong ones."""

    absent: int = 0
    wrong: list[str] = field(default_factory=list)
    missing: dict[str, int] = field(default_factory=dict)

    def miss(self, column: str, count: int = 1) -> None:
        """Count values that are true and were not read."""
        if count:
            self.absent += count
            self.missing[column] = self.missing.get(column, 0) + count


def truths() -> list[Path]:
    """Return the truth files of the corpus."""
    return sorted(CORPUS.glob("*/*.truth.yaml"))


def judge(truth_file: Path) -> Verdict:
    """Read the log of a truth file by the public interface and compare every value."""
    truth = yaml.load(truth_file.read_text("utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    log = truth_file.with_name(truth_file.name.removesuffix(".truth.yaml"))
    verdict = Verdict()
    training, validation = truth.get("training", {}), truth.get("validation", {})
    try:
        table = load_logs(log)
    except AutoprofError:
        for column, values in [*training.items(), *validation.items()]:
            if column in CLAIMS and column not in truth.get("derivable", {}):
                verdict.miss(column, sum(value is not None for value in values))
        return verdict
    if not truth["records"] and not validation:
        verdict.wrong.append(f"{len(table)} records are read of a file without any: {table.iloc[0].to_dict()}")
        return verdict
    if "rank" in training:
        _judge_ranks(verdict, truth, table)
    for column in CLAIMS:
        if column in table and table[column].notna().any():
            _judge_column(verdict, truth, table, column)
        elif column in training and column not in truth.get("derivable", {}):
            verdict.miss(column, sum(value is not None for value in training[column]))
        elif column in validation:
            verdict.miss(column, sum(value is not None for value in validation[column]))
    return verdict


def _records(rows: dict[str, list[Any]], column: str) -> Iterator[tuple[Any, Any, float]]:
    """Step, rank and value of each record that has the column."""
    values = rows[column]
    steps, ranks = rows.get("step", [None] * len(values)), rows.get("rank", [None] * len(values))
    return (record for record in zip(steps, ranks, values, strict=True) if record[2] is not None)


def _judge_ranks(verdict: Verdict, truth: dict[str, Any], table: Any) -> None:
    true = set(truth["training"]["rank"])
    if "rank" not in table or table["rank"].isna().all():
        if true != {0}:
            verdict.wrong.append(f"ranks {sorted(true)} are read as one")
    elif set(table["rank"].dropna().astype(int)) - true:
        verdict.wrong.append(f"ranks {sorted(set(table['rank'].dropna()))} instead of {sorted(true)}")


def _judge_column(verdict: Verdict, truth: dict[str, Any], table: Any, column: str) -> None:
    rows = truth.get("validation", {}) if column.startswith("val_") else truth.get("training", {})
    derivable = truth.get("derivable", {})
    tolerance, is_derived = derivable.get(column, TOLERANCE), False
    if column == "steps_per_s" and column not in rows and "step_time_s" in rows:
        rows = {**rows, column: [_divide(1, value) for value in rows["step_time_s"]]}
        tolerance = derivable.get("step_time_s", tolerance)
        is_derived = True
    if column == "throughput" and column not in rows and "batch_size" in truth:
        rows = {**rows, column: [_divide(truth["batch_size"], value) for value in rows["step_time_s"]]}
        tolerance, is_derived = max(1e-3, derivable.get("step_time_s", 0)), True
    found = table[table[column].notna()]
    if column not in rows:
        values = ", ".join(f"{value:g}" for value in found[column].iloc[:4])
        verdict.wrong.append(f"{column} is not in the log, but {len(found)} values are claimed: {values}")
        return
    true = list(_records(rows, column))
    ranks = found["rank"] if "rank" in found else [None] * len(found)
    read = list(zip(found["step"], ranks, found[column], strict=True))
    by_step = truth["counter"] != "order" and true and all(step is not None for step, _, _ in true)
    if by_step and "rank" in rows and not column.startswith("val_"):
        right = _match_by_step(verdict, column, true, read, tolerance, 0, ranked=True)
    elif by_step and not column.startswith("val_"):
        shift = read[0][0] - true[0][0] if truth["counter"] == "relative" else 0
        right = _match_by_step(verdict, column, true, read, tolerance, shift, ranked=False)
    else:
        right = _match_in_order(verdict, column, true, read, tolerance)
    if column not in derivable:
        verdict.miss(column, 0 if is_derived else len(true) - right)


def _match_by_step(
    verdict: Verdict, column: str, true: list[Any], read: list[Any], tolerance: float, shift: float, *, ranked: bool
) -> int:
    expected: dict[tuple[Any, Any], list[float]] = {}
    for step, rank, value in true:
        expected.setdefault((step, rank if ranked else None), []).append(value)
    right, wrong = 0, []
    for step, rank, value in read:
        known = expected.get((step - shift, int(rank) if ranked and rank == rank and rank is not None else None))
        if known is None:
            wrong.append(f"{value:g} at step {step:g}, where there is none")
        elif not any(_close(value, one, tolerance) for one in known):
            wrong.append(f"{value:g} at step {step:g} instead of {known[-1]}")
        else:
            right += 1
    _note(verdict, column, wrong)
    return right


def _match_in_order(verdict: Verdict, column: str, true: list[Any], read: list[Any], tolerance: float) -> int:
    """The values that are read must be true values, in their order; some may be absent."""
    position, right, wrong = 0, 0, []
    for step, _, value in read:
        ahead = (index for index in range(position, len(true)) if _close(value, true[index][2], tolerance))
        index = next(ahead, None)
        if index is None and position and _close(value, true[position - 1][2], tolerance):
            continue  # bars and consoles repeat the last value until there is a new one
        if index is None:
            wrong.append(f"{value:g} at step {step:g} is not the next value of the log")
        else:
            position, right = index + 1, right + 1
    _note(verdict, column, wrong)
    return right


def _divide(number: float, value: float | list[float] | None) -> Any:
    return [number / one for one in value] if isinstance(value, list) else value and number / value


def _note(verdict: Verdict, column: str, wrong: list[str]) -> None:
    if wrong:
        verdict.wrong.append(f"{column}: {len(wrong)} wrong values: {'; '.join(wrong[:3])}")


def _close(found: float, true: float | list[float], tolerance: float) -> bool:
    if isinstance(true, list):  # the log prints several that are true, such as the last step's and the interval's mean
        return any(_close(found, one, tolerance) for one in true)
    return math.isclose(found, true, rel_tol=tolerance, abs_tol=1e-9) or (math.isnan(found) and math.isnan(true))
