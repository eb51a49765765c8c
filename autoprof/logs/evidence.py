"""Check what columns mean by their values: totals, averages, rates of another kind, and placeholders.

A column whose values contradict its meaning keeps the name that the log gives it, with a note: a wrong value is worse
than none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .fields import Meaning, is_average_loss, of_validation, scale_of

if TYPE_CHECKING:
    import pandas as pd

_NEVER_ZERO: Final = ("step_time_s", "throughput", "tokens_per_s", "steps_per_s", "tflops")
_NEVER_ALL_ZERO: Final = ("loss", "val_loss", "lr", "grad_norm", "memory", "mfu", "gpu_util", "batch_size")
_LANGUAGE: Final = re.compile(r"tok|ppl|perplexity|seq_?len|context")
"""Keys of language models, whose throughput is usually in tokens."""
_MAX_ROUNDING: Final = 0.02
"""The largest error of a value that another one is derived from."""
_MIN_RECORDS: Final = 3
_SHORTEST_STEP_S: Final = 5e-3
"""A shorter step is not plausible: a time of this many steps is that of one."""
_WINDOWS: Final = 8
"""Windows in which a long column is checked."""


def check_columns(
    table: pd.DataFrame,
    sources: Mapping[str, tuple[str, Meaning]],
    notes: list[str],
    *,
    by_epoch: bool = False,
    counted: bool = True,
    unknown_units: Collection[str] = (),
) -> pd.DataFrame:
    """Return the table with every column under the name that its values allow.

    ``sources`` give the key and the meaning that each column was read from; ``by_epoch`` says that a row is an epoch,
    ``counted`` that the log has steps; ``unknown_units`` are columns whose unit the log does not give.
    """
    check = _Check(table, sources, notes, unknown_units)
    if by_epoch:
        check.remove_times_of_epochs()
    check.find_totals()
    check.find_sums_of_losses()
    check.name_throughput()
    check.remove_placeholders()
    check.find_running_means()
    check.compare_data_time()
    check.compare_rates()
    if not by_epoch:
        check.find_times_of_intervals(counted)
    return check.table


class _Check:
    def __init__(
        self, table: pd.DataFrame, sources: Mapping[str, tuple[str, Meaning]], notes: list[str],
        unknown_units: Collection[str],
    ) -> None:  # fmt: skip
        self.table, self._sources, self._notes, self._unknown_units = table, sources, notes, unknown_units
        one = table if "rank" not in table else table[table["rank"].fillna(-1) == table["rank"].fillna(-1).iloc[0]]
        self._one_rank = one

    def remove_placeholders(self) -> None:
        """Remove values that stand for "not measured": a rate or a time of zero, a column of zeros."""
        for name in (*_NEVER_ZERO, *_NEVER_ALL_ZERO):
            if name not in self.table:
                continue
            values = self.table[name]
            known = values.notna()
            zero = known & (values <= 0 if name in _NEVER_ZERO else values == 0)
            if not zero.any():
                continue
            if zero.sum() == known.sum():
                if name in _NEVER_ZERO or zero.sum() >= _MIN_RECORDS:
                    self._notes.append(f"{name}: 0 in every record, so it was not measured")
                    self.table = self.table.drop(columns=name)
            elif name in _NEVER_ZERO:
                self._notes.append(f"{name}: 0 in {int(zero.sum())} records, which are not measurements")
                self.table[name] = values.mask(zero)

    def remove_times_of_epochs(self) -> None:
        """Rename a time without a name of its own in a log of epochs."""
        for name in ("step_time_s", "data_time"):
            key, meaning = self._sources.get(name, (name, None))
            if name in self.table and meaning is not None and (meaning.is_ambiguous or name == "data_time"):
                rows = self._one_rank_of(name)
                if len(rows) >= _MIN_RECORDS and _is_total(rows["step"].to_numpy(), rows[name].to_numpy()):
                    continue
                self._rename(name, key, "the log has a record per epoch, so it is no time of a step")

    def find_sums_of_losses(self) -> None:
        """Rename a total loss that is always many times a mean beside it: the sum of many steps."""
        for name in ("loss", "val_loss"):
            key = self._sources.get(name, (name, None))[0]
            if name not in self.table or "total" not in key.lower():
                continue
            for other in map(str, self.table.columns):
                if other == name or not is_average_loss(other) or of_validation(other) != (name == "val_loss"):
                    continue
                ratio = (self.table[name] / self.table[other].where(self.table[other] > 0)).dropna()
                if len(ratio) and ratio.min() > 3 and ratio.max() < 1.2 * ratio.min():
                    self._rename(name, key, f"always {ratio.median():.0f} times {other}, so it is a sum of many steps")
                    break

    def name_throughput(self) -> None:
        """Rename a rate without a unit that may count tokens, frames of a game, or what one device does."""
        key = self._sources.get("throughput", (None, None))[0]
        if key is None or "throughput" not in self.table or "throughput" not in self._unknown_units:
            return
        is_plain = "through" in key.lower() or "吞吐" in key
        if {"step_time_s", "batch_size"} <= set(self.table):
            batches = (self.table["throughput"] * self.table["step_time_s"] / self.table["batch_size"]).median()
            if 0.8 < batches < 1.25:
                return
            is_plain &= bool(np.isnan(batches))
        if not is_plain or any(map(_LANGUAGE.search, map(str.lower, map(str, self.table.columns)))):
            self._rename("throughput", key, "no unit in the log: samples, tokens or others per second")

    def find_totals(self) -> None:
        """Move a time that only grows, by as much in each step, to the time since the start."""
        for name in ("step_time_s", "elapsed_s"):
            key, meaning = self._sources.get(name, (name, None))
            if name not in self.table or meaning is None or not (meaning.is_ambiguous or name == "elapsed_s"):
                continue
            rows = self._one_rank_of(name)
            if len(rows) < _MIN_RECORDS:
                if name == "elapsed_s" and (np.diff(rows[name].to_numpy()) < 0).any():
                    self._rename(name, key, "falls from record to record, so it is not the time since the start")
                if name == "step_time_s" and "train_time" in key:
                    self._rename(name, key, "a time of the step or of the run: too few records to decide")
                continue
            is_total = _is_total(rows["step"].to_numpy(), rows[name].to_numpy())
            if name == "step_time_s" and is_total:
                if "elapsed_s" in self.table:
                    self._rename(name, key, "grows from record to record, so it is no time of a step")
                else:
                    self.table = self.table.rename(columns={name: "elapsed_s"})
                    self._notes.append(f"{key}: grows from record to record, so it is the time since the start")
            elif name == "step_time_s" and self._exceeds_clock(rows, name):
                self._rename(name, key, "longer than the time between the records, so it is no time of one step")
            elif name == "elapsed_s" and (np.diff(rows[name].to_numpy()) < 0).any() and not is_total:
                if _is_restarting(rows[name].to_numpy()):
                    continue
                self._rename(name, key, "does not grow from record to record, so it is not the time since the start")

    def _exceeds_clock(self, rows: pd.DataFrame, name: str) -> bool:
        """Return whether the steps between two records would take longer than the time between the records."""
        if "timestamp" not in rows:
            return False
        steps, seconds = rows["step"].diff().to_numpy()[1:], rows["timestamp"].diff().to_numpy()[1:]
        possible = (steps > 1) & (seconds > 2)
        if possible.sum() < _MIN_RECORDS - 1:
            return False
        spent = rows[name].to_numpy()[1:] * steps
        return bool(np.median(spent[possible] / seconds[possible]) > 1.5)

    def find_running_means(self) -> None:
        """Rename a step time that is the time since the start / the steps so far."""
        if not {"step_time_s", "elapsed_s"} <= set(self.table) or "step_time_s" not in self._sources:
            return
        rows = self._one_rank[["step"]].join(self.table[["step_time_s", "elapsed_s"]]).dropna()
        step, value, total = (rows[name].to_numpy() for name in ("step", "step_time_s", "elapsed_s"))
        if len(rows) <= _MIN_RECORDS or (np.diff(step) <= 0).any() or (total <= 0).any() or (step <= 0).any():
            return
        own = np.diff(total) / np.diff(step)
        for count in (step, step + 1):
            is_mean = np.abs(total / count / value - 1) < 0.01
            if is_mean.all() and (np.abs(own / value[1:] - 1) > 0.02).any():
                key = self._sources["step_time_s"][0]
                self._rename("step_time_s", key, "the mean of all steps so far, so it is no time of a step")
                return

    def compare_data_time(self) -> None:
        """Rename a time of waiting for data that is longer than the step, or that nothing shows to be a time."""
        if "data_time" not in self.table or "data_time" not in self._sources:
            return
        key, meaning = self._sources["data_time"]
        data = self.table["data_time"]
        both = self.table[["data_time", "step_time_s"]].dropna() if "step_time_s" in self.table else self.table[:0]
        if len(both) and (both["data_time"] > 1.2 * both["step_time_s"]).mean() > 0.5:
            self._rename("data_time", key, "longer than the step, so it is no time of waiting for data")
        elif meaning.unit is None and key.lower() == "data" and not len(both) and (data.dropna() % 1 == 0).all():
            self._rename("data_time", key, "whole numbers without a unit, so it is no time of waiting for data")

    def find_times_of_intervals(self, counted: bool) -> None:
        """Rename a time without a name of its own that may be of all steps since the record before."""
        key, meaning = self._sources.get("step_time_s", ("", None))
        if meaning is None or not meaning.is_ambiguous or "step_time_s" not in self.table:
            return
        rows = self.table.loc[self._one_rank.index.intersection(self.table.index)]
        rows = rows[rows["step_time_s"].notna()]
        steps = rows["step"].diff().to_numpy()[1:]
        if counted and (not len(steps) or np.median(steps) <= 1):
            return
        scale = scale_of("time", meaning.unit)
        is_short = scale is not None and scale < 1  # the time of many steps is given in seconds
        if is_short or "data_time" in rows or _agrees_with_rates(rows):
            return
        if counted and (
            _agrees_with_clock(rows, steps) or rows["step_time_s"].median() < _SHORTEST_STEP_S * np.median(steps)
        ):
            return
        many = f"of {np.median(steps):.0f}" if counted else "of many"
        self._rename("step_time_s", key, f"a time of one step or {many}: nothing in the log decides")

    def compare_rates(self) -> None:
        """Name a rate of unknown things by its product with the step time; rename contradicting rates."""
        if "_per_s" in self.table:
            rate = self.table.pop("_per_s")
            each = (rate * self.table["step_time_s"]).dropna() if "step_time_s" in self.table else rate[:0]
            is_constant = len(each) >= 2 and each.std() <= 0.05 * each.mean()
            if is_constant and each.median() >= 1.5 and "throughput" not in self.table:
                self.table["throughput"] = rate
                self._notes.append("throughput: the rate /s x the step time is always the same number of samples")
            elif is_constant and 0.9 < each.median() < 1.1:
                self.table["steps_per_s"] = rate
            else:
                self.table["rate (/s)"] = rate
        if {"steps_per_s", "step_time_s"} <= set(self.table):
            product = (self.table["steps_per_s"] * self.table["step_time_s"]).median()
            if product == product and not 0.5 < product < 2:
                key = self._sources.get("steps_per_s", ("steps_per_s", None))[0]
                self._rename("steps_per_s", key, "contradicts the step time, so it counts other steps")

    def _rename(self, name: str, key: str, reason: str) -> None:
        new = key if key not in self.table and key != name else f"{key} (logged)"
        self.table = self.table.rename(columns={name: new})
        self._notes.append(f"{key}: {reason}")

    def _one_rank_of(self, name: str) -> pd.DataFrame:
        columns = [column for column in ("step", name, "timestamp") if column in self._one_rank]
        rows = self._one_rank[columns]
        return rows[rows[name].notna()]


def _agrees_with_rates(rows: pd.DataFrame) -> bool:
    """Return whether a rate says that the step time is that of one step."""
    value = rows["step_time_s"]
    if "steps_per_s" in rows and 0.5 < (rows["steps_per_s"] * value).median() < 2:
        return True
    has_batch = {"throughput", "batch_size"} <= set(rows)
    return has_batch and bool(0.5 < (rows["throughput"] * value / rows["batch_size"]).median() < 2)


def _agrees_with_clock(rows: pd.DataFrame, steps: Any) -> bool:
    """Return whether the steps between two records take most of the time between them; longer times are no matter."""
    if "timestamp" not in rows:
        return False
    seconds = rows["timestamp"].diff().to_numpy()[1:]
    possible = (steps > 0) & (seconds >= 2)
    share = rows["step_time_s"].to_numpy()[1:][possible] * steps[possible] / seconds[possible]
    return bool(len(share) and np.median(share) > 0.3)


def _is_total(step: Any, value: Any) -> bool:
    """Return whether values only grow, and by as much per step from record to record."""
    if (np.diff(value) < 0).any() or (np.diff(step) <= 0).any():
        return False
    if len(value) > 2 * _WINDOWS:  # rounded totals grow by steps of the rounding
        at = np.linspace(0, len(value) - 1, _WINDOWS + 1).astype(int)
        step, value = step[at], value[at]
    rate = np.diff(value) / np.diff(step)
    median = float(np.median(rate))
    even = bool(np.mean(np.abs(rate - median) <= 0.5 * median) > 0.6)
    return median > 0 and even and (value[-1] >= 1.5 * value[0] or len(value) >= _WINDOWS)


def _is_restarting(value: Any) -> bool:
    """Return whether values grow but for a few returns to a low one: a clock that starts again in each epoch."""
    falls = np.diff(value) < 0
    return bool(falls.mean() <= 0.34) and len(value) > _MIN_RECORDS


def is_precise(values: Any) -> bool:
    """Return whether values are written with enough digits to derive others from them."""
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known) & (known > 0)][:2000]
    if not len(known):
        return False
    return bool(_resolution(known) / 2 / np.median(known) <= _MAX_ROUNDING)


def is_clock_precise(seconds: Any) -> bool:
    """Return whether the differences of a clock have enough digits to derive a step time from them."""
    known = np.asarray(seconds, dtype=np.float64)
    known = known[np.isfinite(known)][:2000]
    each = np.diff(known)
    each = each[each > 0]
    return bool(len(each) and _resolution(known) / 2 / np.median(each) <= _MAX_ROUNDING)


def _resolution(known: Any) -> float:
    """Return the unit of the last digit of values; 0 if they have more than four decimals."""
    for unit in (1.0, 0.1, 0.01, 0.001, 0.0001):
        if np.allclose(known / unit, np.round(known / unit), rtol=0, atol=1e-6):
            return unit
    return 0.0
