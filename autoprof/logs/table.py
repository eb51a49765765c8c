"""The table of one file, from its raw records: one row per step and rank, the columns of ``fields`` first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .extras import import_pandas
from .fields import FIELDS, METRICS, POSITIONS, Meaning, normalize_key
from .formats._base import RawRecords

if TYPE_CHECKING:
    import pandas as pd

_ONE_VALUE: Final = frozenset({"loss", "lr", "grad_norm", "step_time_s", "data_time", "throughput", "tokens_per_s"})
"""Columns of which two keys with different values in one record leave no certain value."""


class LogTable:
    """The table of one file (``frame``), counts of its records, and ``notes`` for the user."""

    def __init__(self, raw: RawRecords) -> None:
        self._raw = raw
        self.notes: list[str] = list(raw.notes)
        frame = raw.to_frame()
        self.records = len(frame)
        self.frame = self._build(frame) if len(frame) else frame.drop(columns="_n", errors="ignore")

    def _build(self, frame: pd.DataFrame) -> pd.DataFrame:
        self._split_validation(frame)
        self._drop_whole_epochs(frame)
        table = self._choose_columns(frame)
        table = self._drop_uncertain(table)
        table = self._fill_steps(table, frame)
        table = self._merge(self._drop_superseded(table))
        self._drop_spoiled(table)
        return _order(_derive(table, self.notes))

    def _keys(self, frame: pd.DataFrame, *fields: str) -> list[str]:
        """Return the keys that mean one of these columns, the preferred ones first."""
        keys = [key for key, meaning in self._raw.meanings.items() if meaning.field in fields and key in frame]
        return sorted(keys, key=lambda key: self._raw.meanings[key].preference)

    def _split_validation(self, frame: pd.DataFrame) -> None:
        """Keep only the losses of validation records, as ``val_loss``, at the step of the training before."""
        if "_validation" not in frame:
            return
        is_validation = frame.pop("_validation").fillna(0) > 0
        for key in self._keys(frame, *(METRICS - {"val_loss"})):
            if self._raw.meanings[key].field == "loss" and frame[key][is_validation].notna().any():
                frame[f"val_{key}"] = frame[key].where(is_validation)
                self._raw.add_meaning(f"val_{key}", Meaning("val_loss", 20))
            frame[key] = frame[key].mask(is_validation)
        steps = self._keys(frame, "step")
        if steps:
            step = _first_of(frame, steps)
            before = step.mask(is_validation).ffill()
            is_own = is_validation & (step < before)
            frame[steps] = frame[steps].mask(is_own)
            frame[steps[0]] = frame[steps[0]].fillna(before.where(is_own))

    def _drop_whole_epochs(self, frame: pd.DataFrame) -> None:
        """Drop the measurements of records with an epoch and no step, in a log whose other records have steps."""
        steps, epochs = self._keys(frame, "step"), self._keys(frame, "epoch")
        measured = self._keys(frame, *(METRICS - {"val_loss"}))
        if not steps or not epochs or not measured:
            return
        whole = frame[steps].isna().all(axis="columns") & frame[epochs].notna().any(axis="columns")
        whole &= frame[measured].notna().any(axis="columns")
        if whole.any() and not whole.all():
            frame.loc[whole, measured] = np.nan
            self.notes.append(f"records of whole epochs, of which only the validation is used: {int(whole.sum())}")

    def _choose_columns(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Choose the key of each known column; other keys keep their own names."""
        columns: dict[str, Any] = {}
        used: set[str] = set()
        for name in FIELDS:
            keys = [
                key
                for key in self._keys(frame, name)
                if self._raw.meanings[key].gpu is None and frame[key].notna().any()
            ]
            keys = _counters(frame, keys) if name == "step" else keys
            if not keys:
                continue
            if name in POSITIONS:
                used.update(self._keys(frame, name))
                columns[name] = _first_of(frame, keys)
            elif name in _ONE_VALUE and _contradict(frame, keys):
                self.notes.append(f"{', '.join(keys)}: different values in one record, so {name} is not certain")
            else:
                best = max(keys, key=lambda key: 2 * frame[key].notna().sum() >= frame[keys].notna().sum().max())
                used.add(best)
                columns[name] = frame[best]
                if best in self._raw.unknown_units:
                    self._raw.unknown_units.add(name)
                if name == "throughput":
                    self._raw.unknown_units |= {name} if normalize_key(best).endswith("throughput") else set()
        for key, meaning in self._raw.meanings.items():
            if meaning.gpu is not None and key in frame:
                columns[f"gpu_util_{meaning.gpu}"] = frame[key]
                used.add(key)
        for ours, theirs in (("rank", "_rank"), ("timestamp", "_time")):
            if theirs in frame and ours not in columns:
                columns[ours] = frame[theirs]
        for key in frame.columns:
            if key not in used and not str(key).startswith("_"):
                columns[f"{key} (logged)" if key in columns or key in FIELDS else str(key)] = frame[key]
        return import_pandas().DataFrame(columns, index=frame.index, copy=True)

    def _drop_uncertain(self, table: pd.DataFrame) -> pd.DataFrame:
        """Rename the columns whose unit or meaning the log does not decide, with a note."""
        keys = " ".join(map(normalize_key, self._raw.meanings)) + " ".join(map(normalize_key, map(str, table)))
        per_gpu = [name for name in table if str(name).startswith("gpu_util_")]
        if per_gpu and "gpu_util" not in table:
            table["gpu_util"] = table[per_gpu].mean(axis="columns")
        reasons: dict[str, str] = {}
        if "memory" in self._raw.unknown_units:
            reasons["memory"] = "no unit in the log"
        for name in ("mfu", "gpu_util"):
            if name in table and name in self._raw.unknown_units and 0 < table[name].max() <= 1:
                reasons[name] = "a share or per cent"
        # The `throughput` of a language model may be of tokens.
        if "throughput" in self._raw.unknown_units and any(part in keys for part in ("tok", "ppl", "perplexity")):
            reasons["throughput"] = "of samples or of tokens"
        # In reinforcement learning rates are of the environment.
        if any(part in keys for part in ("timesteps", "env_step", "envinteracts", "episode", "reward")):
            reasons |= dict.fromkeys(("throughput", "steps_per_s"), "of an environment, or of the training")
        for name, reason in reasons.items():
            if name in table:
                table = table.rename(columns={name: f"{name} (uncertain)"})
                self.notes.append(f"{name}: {reason}, so the column is absent")
        for name in ("throughput", "tokens_per_s", "step_time_s", "steps_per_s", "tflops", "mfu"):
            if name in table:  # a placeholder
                table[name] = table[name].where(table[name] > 0)
        is_rounded = "lr" in table and not table["lr"].any()
        return table.drop(columns="lr") if is_rounded else table

    def _drop_spoiled(self, table: pd.DataFrame) -> None:
        """Drop the values that include a validation."""
        name = self._raw.spoiled_by_validation
        if name in table and "val_loss" in table:
            spoiled = table["val_loss"].notna() & table[name].notna()
            table[name] = table[name].mask(spoiled)
            if spoiled.any():
                self.notes.append(f"{name}: includes the validation in {int(spoiled.sum())} records, dropped there")

    def _fill_steps(self, table: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
        """Give every record a step: its own, else that of the record before it, else the epoch or its number."""
        if "rank" in table and table["rank"].isna().any():
            unlabelled = table[table["rank"].isna() & table[[*METRICS & set(table)]].notna().any(axis="columns")]
            if table["rank"].nunique() > 1 or ("step" in table and unlabelled["step"].dropna().duplicated().any()):
                table = table.drop(columns="rank")
                self.notes.append("rank: some records have none, so the column is absent")
            else:
                table["rank"] = table["rank"].max()
        if "step" in table and "epoch" in table and not self._continue_steps(table, frame):
            table = table.drop(columns="step")
            self.notes.append("steps restart in each epoch, and its length is not in the log")
        if "step" not in table:
            if "epoch" in table and (table["epoch"] % 1 == 0).all() and _is_unique(table):
                table["step"] = table["epoch"]
                self.notes.append("no step in the log: the epoch is used as the step")
            else:
                # a validation has no number of its own
                counted = table["loss"].notna() if "loss" in table else table.notna().any(axis="columns")
                ranks = table["rank"] if "rank" in table else np.zeros(len(table))
                table["step"] = counted.groupby(ranks).cumsum().clip(lower=1)
                self.notes.append("no step in the log: the records are numbered")
        elif table["step"].isna().any():
            table["step"] = (table.groupby("rank", dropna=False)["step"] if "rank" in table else table["step"]).ffill()
            dropped = int(table["step"].isna().sum())
            table = table[table["step"].notna()]
            if dropped:
                self.notes.append(f"records before the first step, dropped: {dropped}")
        return table

    def _continue_steps(self, table: pd.DataFrame, frame: pd.DataFrame) -> bool:
        """Number steps through all epochs where the log restarts them; return False where that is not certain."""
        known = table["step"].notna() & table["epoch"].notna()
        rows = table[known]
        if "rank" in rows and rows["rank"].nunique() > 1:
            rows = rows[rows["rank"] == rows["rank"].min()]
        epoch = np.floor(rows["epoch"])
        if len(rows) < 2 or (epoch != rows["epoch"]).any():
            return True
        ends = rows.groupby(epoch)["step"].agg(["min", "max"])
        restarts = ends["min"].to_numpy()[1:] <= ends["max"].to_numpy()[:-1]
        lengths = frame["_of"][known].dropna().unique() if "_of" in frame else np.array([])
        is_bounded = len(lengths) == 1 and bool((table["step"][known] <= lengths[0]).all())
        # Most epochs have to restart the steps.
        if not restarts.any() or (not is_bounded and restarts.mean() < 0.8):
            return True
        if not is_bounded:
            return False
        table["step"] += ((table["epoch"] - epoch.min()) * lengths[0]).where(known, 0.0)
        self.notes.append(f"steps restart in each epoch: numbered through, {lengths[0]:.0f} steps per epoch")
        return True

    def _drop_superseded(self, table: pd.DataFrame) -> pd.DataFrame:
        """Drop the records that a run which begins again at an earlier step repeats, and those behind them."""
        if "rank" in table and table["rank"].nunique(dropna=False) > 1:
            return table
        steps = table["step"].to_numpy()
        keep = np.ones(len(table), dtype=bool)
        for begin in np.flatnonzero(np.diff(steps) < 0) + 1:
            if steps[begin] in steps[:begin] and (steps[begin : begin + 2] <= steps[begin - 1]).all():
                keep[:begin] &= steps[:begin] < steps[begin]
        dropped = int((~keep).sum())
        if dropped:
            self.notes.append(
                f"steps logged again later by a run that begins again: {dropped} records before are not used"
            )
        return table[keep]

    def _merge(self, table: pd.DataFrame) -> pd.DataFrame:
        """Join the records of one step and rank into a row; of repeated values the last wins."""
        keys = ["rank", "step"] if "rank" in table else ["step"]
        order = table.groupby("rank", dropna=False)["step"] if "rank" in table else table["step"]
        out_of_order = int((table["step"] < order.cummax()).sum())
        if table.duplicated(keys).any():
            measured = [name for name in ("loss", "val_loss", "step_time_s") if name in table][:1]
            counts = table.groupby(keys, dropna=False)[measured].count().max(axis="columns") if measured else None
            repeated = 0 if counts is None else int((counts - 1).clip(lower=0).sum())
            if repeated:
                self.notes.append(f"steps logged again later, the last record is kept: {repeated}")
            table = table.groupby(keys, sort=True, dropna=False, as_index=False).last()
        elif out_of_order or "rank" in table:
            table = table.sort_values(keys, kind="stable")
        if out_of_order:
            self.notes.append(f"records out of order, sorted by step: {out_of_order}")
        return table.reset_index(drop=True)


def _first_of(frame: pd.DataFrame, keys: list[str]) -> Any:
    """Return the first known value of these keys in each record."""
    return frame[keys].bfill(axis="columns").iloc[:, 0]


def _counters(frame: pd.DataFrame, keys: list[str]) -> list[str]:
    """Return the keys of a step without those that never change, first those that never fall."""
    known = {key: frame[key].dropna() for key in keys}
    # A counter that is the same in three records is a setting.
    moving = [key for key in keys if len(known[key]) < 3 or known[key].nunique() > 1]
    if len(moving) > 1:  # DeepSpeed's timer counts the steps of the process, not of the run
        moving = [key for key in moving if key != "process_step"]
    return sorted(moving, key=lambda key: bool((known[key].diff() < 0).any()))


def _contradict(frame: pd.DataFrame, keys: list[str]) -> bool:
    """Return whether two of the keys have different values in one record."""
    both = frame[keys][frame[keys].notna().sum(axis="columns") > 1]
    return bool(len(both)) and bool(
        ((both.max(axis="columns") - both.min(axis="columns")) > 1e-6 * both.abs().max(axis="columns")).any()
    )


def _is_unique(table: pd.DataFrame) -> bool:
    """Return whether no two measured records have the same epoch and rank."""
    keys = ["epoch", "rank"] if "rank" in table else ["epoch"]
    measured = [name for name in table if name in METRICS and name != "val_loss"]
    rows = table[table[measured].notna().any(axis="columns")] if measured else table
    return not rows.duplicated(keys).any()


def _derive(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """Add the columns that follow from others, each with a note."""

    def add(name: str, values: Any, source: str) -> None:
        if name not in table and values.notna().any():
            table[name] = values
            notes.append(f"{name}: {source}")

    if "batch_size" in table and "step_time_s" in table:
        add("throughput", table["batch_size"] / table["step_time_s"], "batch size / step time")
    # So many seconds are counted since 1970.
    if "elapsed_s" in table and table["elapsed_s"].min() > 1e8:  # TensorBoard's "Wall time" is a date
        table = (
            table.rename(columns={"elapsed_s": "timestamp"})
            if "timestamp" not in table
            else table.drop(columns="elapsed_s")
        )
    if "timestamp" in table:
        if table["timestamp"].max() > 1e11:  # milliseconds since 1970
            table["timestamp"] /= 1e3
        if "elapsed_s" not in table:
            table["elapsed_s"] = table["timestamp"] - table["timestamp"].min()
        micros = (table["timestamp"] * 1e6).round()
        table["timestamp"] = import_pandas().to_datetime(micros, unit="us", errors="coerce")
    elif "step_time_s" in table and "rank" not in table:
        each = table["step_time_s"] * table["step"].diff().fillna(1).clip(lower=1)
        add("elapsed_s", each.fillna(0).cumsum(), "sum of step times, without validation and saving")
    return table


def _order(table: pd.DataFrame) -> pd.DataFrame:
    """Return the columns in the order of ``FIELDS``, counters as whole numbers, without empty columns."""
    first: Mapping[str, None] = dict.fromkeys(("rank", "step", "epoch", "elapsed_s", "timestamp", *FIELDS))
    known = [name for name in first if name in table]
    table = table[[*known, *(name for name in table if name not in first)]]
    for name in ("step", "rank", "epoch"):
        if name in table and table[name].notna().all() and (table[name] % 1 == 0).all():
            table = table.assign(**{name: table[name].astype("int64")})
    return table.dropna(axis="columns", how="all")
