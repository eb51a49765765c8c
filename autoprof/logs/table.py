"""From the raw columns of one file to a table: one row a step and rank, the columns of ``fields`` first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .engine import need_pandas
from .fields import FIELDS
from .readers.base import Raw

if TYPE_CHECKING:
    import pandas as pd

_POSITIONS: Final = ("step", "epoch", "rank", "timestamp")
"""Columns filled from every key that means them; of the others one key is the column: no two are mixed."""


class Built:
    """One file's table, and what is to be said about it."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self.notes: list[str] = list(raw.notes)
        self.records = 0
        self.repeated = 0
        self.out_of_order = 0
        self._no_steps = False
        self.frame = self._build(raw.frame())

    def _build(self, frame: pd.DataFrame) -> pd.DataFrame:
        self.records = len(frame)
        if not len(frame):
            return frame.drop(columns="_n")
        self._split_validation(frame)
        table = self._columns(frame)
        table = self._units(table)
        table = self._place(table, frame)
        table = self._merge(table)
        return _derive(table, self.notes, counted=not self._no_steps)

    def _split_validation(self, frame: pd.DataFrame) -> None:
        """Make the loss of records that call themselves validation another column."""
        if "_split" not in frame:
            return
        is_validation = (
            frame.pop("_split").astype("str").str.contains(r"^(?:val|eval|test|dev|valid)", case=False, na=False)
        )
        if not is_validation.any():
            return
        for key, meaning in list(self._raw.meanings.items()):
            if meaning.field == "loss" and key in frame:
                frame[f"val_{key}"] = frame[key].where(is_validation)
                frame[key] = frame[key].mask(is_validation)
                self._raw.learn(f"val_{key}", meaning._replace(field="val_loss"))
            elif (
                meaning.field in ("step_time_s", "data_time", "throughput", "tokens_per_s", "steps_per_s")
                and key in frame
            ):
                frame[key] = frame[key].mask(is_validation)

    def _columns(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Choose for each column of ``fields`` the key that it comes from; the rest keep their own names."""
        by_field: dict[str, list[str]] = {}
        for key, meaning in self._raw.meanings.items():
            if key in frame and meaning.card is None:
                by_field.setdefault(meaning.field, []).append(key)
        columns: dict[str, Any] = {}
        used: set[str] = set()
        for name in FIELDS:
            keys = sorted(by_field.get(name, ()), key=lambda key: self._raw.meanings[key].rank)
            keys = [key for key in keys if frame[key].notna().any()]
            if not keys:
                continue
            if name in _POSITIONS:
                column = frame[keys[0]]
                for key in keys[1:]:
                    column = column.fillna(frame[key])
                used.update(keys)
            else:
                counts = {key: int(frame[key].notna().sum()) for key in keys}
                most = max(counts.values())
                best = next(key for key in keys if 2 * counts[key] >= most)
                column = frame[best]
                used.add(best)
                if best in self._raw.unknown_units:
                    self._raw.unknown_units.add(name)
            columns[name] = column.astype("float64")
        cards = {
            meaning.card: key
            for key, meaning in self._raw.meanings.items()
            if meaning.card is not None and key in frame
        }
        for card in sorted(cards):
            columns[f"gpu_util_{card}"] = frame[cards[card]].astype("float64")
            used.add(cards[card])
        for key in frame.columns:
            if key not in used and not str(key).startswith("_") and key not in columns:
                columns[str(key)] = frame[key]
        if "_rank" in frame and "rank" not in columns:
            columns["rank"] = frame["_rank"]
        if "_time" in frame and "timestamp" not in columns:
            columns["timestamp"] = frame["_time"]
        return need_pandas().DataFrame(columns, index=frame.index)

    def _units(self, table: pd.DataFrame) -> pd.DataFrame:
        """Settle the units that the log does not say, and say so."""
        unknown = self._raw.unknown_units
        if "memory" in table and "memory" in unknown:
            largest = table["memory"].max()
            scale, unit = (2.0**-30, "bytes") if largest > 1e6 else (2.0**-10, "MiB") if largest > 256 else (1.0, "GiB")
            table["memory"] *= scale
            self.notes.append(f"memory: no unit in the log, read as {unit}")
        if "timestamp" in table and table["timestamp"].max() > 1e11:  # milliseconds since 1970
            table["timestamp"] /= 1e3
        if "step_time_s" in table and table["step_time_s"].min() > 1e8:  # "time" that is a moment
            table["timestamp"] = table.pop("step_time_s")
        cards = [name for name in table if str(name).startswith("gpu_util_") and str(name)[9:].isdigit()]
        if cards:
            table["gpu_util"] = table[cards].mean(axis="columns")
        for name in ("gpu_util", *cards, "mfu"):
            if name in table:
                values = table[name].where(table[name] >= 0)
                if 0 < values.max() <= 1.0 and (values.dropna() % 1 != 0).any() and name not in _said(self._raw, name):
                    values *= 100
                table[name] = values
        return table

    def _place(self, table: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
        """Give every record a step: its own, counted on over epochs; else the one before; else a number."""
        if "rank" in table:
            ranks = table["rank"].dropna().unique()
            if len(ranks) == 1:
                table["rank"] = ranks[0]
        if "step" not in table or not table["step"].notna().any():
            if "epoch" in table and _tells_apart(table):
                table["step"] = table["epoch"]
                self.notes.append("no step in the log: the epoch is the step")
            else:
                ranked = table.groupby("rank", dropna=False).cumcount() if "rank" in table else np.arange(len(table))
                table["step"] = ranked + 1.0
                self.notes.append("no step in the log: the records are numbered")
            self._no_steps = True
            return table
        if "epoch" in table:
            self._count_on(table, frame)
        homeless = table["step"].isna()
        if homeless.any():
            table["step"] = (table.groupby("rank", dropna=False)["step"] if "rank" in table else table["step"]).ffill()
            lost = int(table["step"].isna().sum())
            table = table[table["step"].notna()]
            if lost:
                self.notes.append(f"records before the first step, left out: {lost}")
        return table

    def _count_on(self, table: pd.DataFrame, frame: pd.DataFrame) -> None:
        """Count steps that begin anew in each epoch on over the epochs."""
        known = table["step"].notna() & table["epoch"].notna()
        rows = table[known]
        if "rank" in rows and rows["rank"].nunique() > 1:
            rows = rows[rows["rank"] == rows["rank"].min()]
        step, epoch = rows["step"].to_numpy(), np.floor(rows["epoch"].to_numpy())
        if len(step) < 2 or (epoch != rows["epoch"].to_numpy()).any():
            return
        epochs = np.unique(epoch)
        least = np.array([step[epoch == number].min() for number in epochs[:256]])
        most = np.array([step[epoch == number].max() for number in epochs[:256]])
        again = least[1:] < most[:-1]
        if not again.any() or again.mean() < 0.8:
            return
        total = frame["_of"][known].max() if "_of" in frame else np.nan
        length = total if total == total and total >= step.max() else step.max() + (step.min() == 0)
        table["step"] += ((table["epoch"] - epoch.min()) * length).where(known, 0.0)
        self.notes.append(f"steps begin anew in each epoch: counted on, {length:.0f} to an epoch")

    def _merge(self, table: pd.DataFrame) -> pd.DataFrame:
        """Make one row of the records of a step and rank: what several lines say, the last where they repeat it."""
        keys = ["rank", "step"] if "rank" in table else ["step"]
        order = table.groupby("rank", dropna=False)["step"] if "rank" in table else table["step"]
        self.out_of_order = int((table["step"] < order.cummax()).sum())
        if table.duplicated(keys).any():
            measured = [name for name in table if name in FIELDS and name not in (*_POSITIONS, "elapsed_s")]
            counts = table.groupby(keys, sort=False, dropna=False)[measured].count()
            told = next((name for name in ("loss", "val_loss") if name in counts), None)
            most = counts[told] if told is not None else counts.max(axis="columns")
            self.repeated = int((most - 1).clip(lower=0).sum())
            table = table.groupby(keys, sort=True, dropna=False, as_index=False).last()
        elif self.out_of_order or "rank" in table:
            table = table.sort_values(keys, kind="stable")
        if self.repeated:
            self.notes.append(f"steps logged again later, the last is kept: {self.repeated}")
        elif self.out_of_order:
            self.notes.append(f"records out of order, sorted by step: {self.out_of_order}")
        return table.reset_index(drop=True)


def _tells_apart(table: pd.DataFrame) -> bool:
    """Say whether the epoch can stand for the step: every record has one, and no two losses the same."""
    if "rank" in table and table["rank"].nunique() > 1:
        return False
    epoch = table["epoch"]
    losses = epoch[table["loss"].notna()] if "loss" in table else epoch
    return bool(epoch.notna().all() and losses.is_unique and len(losses))


def _said(raw: Raw, name: str) -> Iterable[str]:
    """Return the name where the log says the unit of a share."""
    if name.startswith("gpu_util"):
        return ()
    return (name,) if any(m.field == name and k not in raw.unknown_units for k, m in raw.meanings.items()) else ()


def _derive(table: pd.DataFrame, notes: list[str], counted: bool) -> pd.DataFrame:
    """Add what follows from other columns, and say so: time of a step, throughput, time since the start."""

    def add(name: str, values: Any, formula: str) -> None:
        if name not in table and values.notna().any():
            table[name] = values
            notes.append(f"{name} = {formula}")

    pd = need_pandas()
    steps = table["step"].diff()
    if "steps_per_s" in table:
        add("step_time_s", 1 / table["steps_per_s"].where(table["steps_per_s"] > 0), "1 / steps per second")
    one_rank = "rank" not in table or table["rank"].nunique(dropna=False) <= 1
    if "elapsed_s" in table and one_rank and counted:  # what stands for a step is none
        seconds = table["elapsed_s"].diff()
        add(
            "step_time_s",
            (seconds / steps).where((steps > 0) & (seconds > 0)),
            "elapsed time between records / steps between them",
        )
    if "batch_size" in table and "step_time_s" in table:
        add(
            "throughput",
            table["batch_size"] / table["step_time_s"].where(table["step_time_s"] > 0),
            "batch size / step time",
        )
    if "batch_size" in table and "throughput" in table:
        add(
            "step_time_s",
            table["batch_size"] / table["throughput"].where(table["throughput"] > 0),
            "batch size / throughput",
        )
    if "timestamp" in table:
        start = table["timestamp"].min()
        if "elapsed_s" not in table:
            table["elapsed_s"] = table["timestamp"] - start
        micros = (table["timestamp"] * 1e6).round()
        table["timestamp"] = pd.to_datetime(micros, unit="us", errors="coerce")
    elif "step_time_s" in table and one_rank:
        each = table["step_time_s"] * steps.fillna(1).clip(lower=1)
        add("elapsed_s", each.fillna(0).cumsum(), "sum of step times")
    order = [name for name in ("rank", "step", "epoch", "elapsed_s", "timestamp", *FIELDS) if name in table]
    order = list(dict.fromkeys(order))
    cards = [name for name in table if str(name).startswith("gpu_util_")]
    rest = [name for name in table if name not in order and name not in cards]
    table = table[[*order, *cards, *rest]]
    for name in ("step", "rank", "epoch"):
        if (
            name in table
            and table[name].notna().all()
            and (table[name] % 1 == 0).all()
            and table[name].abs().max() < 2**53
        ):
            table = table.assign(**{name: table[name].astype("int64")})
    return table.dropna(axis="columns", how="all")
