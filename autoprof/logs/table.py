"""The table of one file, from its raw records: one row per step and rank, the columns of ``fields`` first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .evidence import check_columns, is_clock_precise, is_precise
from .extras import import_pandas
from .fields import (
    FIELDS,
    METRICS,
    ONE_DATA_SET,
    Meaning,
    has_prefix_of_validation,
    is_loss,
    is_other_loss,
    is_part,
    normalize_key,
    of_validation,
)
from .formats._base import RawRecords

if TYPE_CHECKING:
    import pandas as pd

_ENVIRONMENT: Final = re.compile(r"(?:^|_)(?:total_timesteps|timesteps|env_steps?|totalenvinteracts)(?:_|$)")
_OTHER_WORK: Final = frozenset({"timing_s_testing", "timing_s_save_checkpoint"})
"""Parts of verl's ``timing_s/step`` that are no training; newer versions leave them out of it."""
_POSITIONS: Final = ("step", "epoch", "rank", "timestamp")
"""Columns filled from all keys that mean them. Any other column comes from one key: values are never mixed."""


_MAX_MEMORY_GIB: Final = 1e5
_MAX_GIB_OF_A_DEVICE: Final = 512
_MIN_RESTART: Final = 3
"""Steps behind a fall of the counter that are a run which begins again."""
_MAX_RESTARTS: Final = 0.2
"""Restarts per record; more are records out of order."""
_MAX_BLOCKS: Final = 50
"""Columns of a table that is not copied into one block of memory."""
_MAX_PER_EPOCH: Final = 4
"""Records per epoch without a step, of which each is of the whole epoch."""
_MIN_CONSTANT: Final = 3
"""Records after which a counter that is always the same is a setting."""


class LogTable:
    """The table of one file (``frame``), counts of its records, and ``notes`` for the user."""

    def __init__(self, raw: RawRecords) -> None:
        self._raw = raw
        self.notes: list[str] = list(raw.notes)
        self.records = 0
        self.repeated = 0
        self.out_of_order = 0
        self._no_steps = False
        self._has_unranked = False
        """Whether the log names one rank, and records have none."""
        self._by_epoch = False
        self._sources: dict[str, tuple[str, Meaning]] = {}
        """The key and the meaning of each column that is read from one key."""
        self.frame = self._build(raw.to_frame())

    def _build(self, frame: pd.DataFrame) -> pd.DataFrame:
        self.records = len(frame)
        if not len(frame):
            return frame.drop(columns="_n")
        self._drop_validation_sections(frame)
        self._split_validation(frame)
        self._find_prefix_of_validation(frame)
        frame = self._follow_headers(frame)
        self._drop_epoch_means(frame)
        self._drop_times_of_validation(frame)
        table = self._columns(frame)
        table = self._units(table)
        table = self._fill_steps(table, frame)
        table = self._drop_superseded(table)
        table = self._merge(table)
        self._drop_spoiled_times(table)
        self._drop_repeated_validations(table)
        table = self._rename_environment_rates(table)
        table = check_columns(
            table,
            self._sources,
            self.notes,
            by_epoch=self._by_epoch,
            counted=not self._no_steps,
            unknown_units=self._raw.unknown_units,
        )
        return _derive(table, self.notes, counted=not self._no_steps, sources=self._sources)

    def _follow_headers(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Give each record the epoch of the line ``Epoch 1/5`` above it, and remove these lines."""
        if "_header" not in frame:
            return frame
        is_header = frame.pop("_header").fillna(0) > 0
        if not is_header.any():
            return frame
        for name in ("epoch", "step"):
            keys = [key for key, meaning in self._raw.meanings.items() if meaning.field == name and key in frame]
            if keys and not (name == "step" and frame.loc[~is_header, keys].notna().any(axis=None)):
                known = frame[keys].bfill(axis="columns").iloc[:, 0]
                frame[keys[0]] = known.fillna(known.where(is_header).ffill())
        return frame[~is_header].reset_index(drop=True)

    def _drop_validation_sections(self, frame: pd.DataFrame) -> None:
        """Drop the values of batches below a line such as ``Running validation``: their counter runs behind."""
        section = frame.pop("_section") if "_section" in frame else None
        steps, losses = self._keys_of(frame, "step"), self._keys_of(frame, "loss")
        if section is None or not section.any() or not steps or "_rank" in frame:
            return
        step = frame[steps].bfill(axis="columns").iloc[:, 0]
        epochs = self._keys_of(frame, "epoch")
        epoch = (frame[epochs].bfill(axis="columns").iloc[:, 0].ffill() if epochs else 0 * step).fillna(-1)
        is_training = (section == 0) & (frame[losses].notna().any(axis="columns") if losses else step.notna())
        reached = step.where(is_training).groupby(epoch).cummax().groupby(epoch).ffill()
        length = frame["_of"].where(is_training).ffill() if "_of" in frame else np.nan * step
        length_now = frame["_of"] if "_of" in frame else np.nan * step
        is_behind = (section > 0) & (step < reached) & ~(length_now == length)
        measured = self._keys_of(frame, *METRICS)
        is_behind &= frame[measured].notna().any(axis="columns") if measured else False
        if is_behind.any():
            frame.loc[is_behind, [*measured, *steps]] = np.nan
            self.notes.append(f"records below the beginning of a validation, not used: {int(is_behind.sum())}")

    def _split_validation(self, frame: pd.DataFrame) -> None:
        """Keep only the losses of validation records, as ``val_loss``; their step is the one of the training before."""
        is_validation = frame.pop("_validation").fillna(0) > 0 if "_validation" in frame else None
        found = self._find_unmarked_validation(frame, is_validation)
        is_validation = found if is_validation is None else is_validation | found
        if not is_validation.any():
            return
        for key, meaning in list(self._raw.meanings.items()):
            if key not in frame or not frame[key][is_validation].notna().any():
                continue
            if meaning.field == "loss":
                frame[f"val_{key}"] = frame[key].where(is_validation)
                self._raw.add_meaning(f"val_{key}", meaning._replace(field="val_loss"))
                frame[key] = frame[key].mask(is_validation)
            elif meaning.field in METRICS - {"val_loss"}:
                frame[key] = frame[key].mask(is_validation)
        self._drop_progress(frame, is_validation)
        self._use_training_steps(frame, is_validation)

    def _find_prefix_of_validation(self, frame: pd.DataFrame) -> None:
        """Read ``v_loss`` as the loss of the validation where the names of its record say so."""
        if "v_loss" not in frame or "loss" not in frame:
            return
        at = frame[["v_loss", "loss"]].notna().all(axis="columns")
        if has_prefix_of_validation(map(str, frame.columns[frame[at].notna().any()])):
            self._raw.add_meaning("v_loss", Meaning("val_loss", 10))

    def _drop_progress(self, frame: pd.DataFrame, is_validation: Any) -> None:
        """Drop the losses of single batches of a validation: their counter begins again in each validation."""
        steps, losses = self._keys_of(frame, "step"), self._keys_of(frame, "val_loss")
        if not steps or not losses:
            return
        step = frame[steps].bfill(axis="columns").iloc[:, 0]
        before = step.mask(is_validation).ffill()
        is_own = is_validation & (step < before) & frame[losses].notna().any(axis="columns")
        if not is_own.any():
            return
        validation = (~is_validation).cumsum()
        batches = step[is_own].groupby(validation[is_own]).transform("nunique")
        is_batch = is_own & ((batches > 1) | (step == 0)).reindex(frame.index, fill_value=False)
        if is_batch.any():
            frame.loc[is_batch, losses] = np.nan
            self.notes.append(f"losses of single batches of a validation, not used: {int(is_batch.sum())}")

    def _find_unmarked_validation(self, frame: pd.DataFrame, marked: Any) -> Any:
        """Return which records are of validation although nothing says so.

        In a log whose training records have a loss, records of another structure without one, whose counter runs behind
        that of the training, are of validation: their times are not those of training steps.
        """
        none = np.zeros(len(frame), dtype=bool)
        kinds = frame.pop("_kind").to_numpy() if "_kind" in frame else none
        keys: dict[str, list[str]] = {meaning.field: [] for meaning in self._raw.meanings.values()}
        for key, meaning in self._raw.meanings.items():
            if key in frame:
                keys[meaning.field].append(key)
        if not keys.get("loss") or not keys.get("step") or len(np.unique(kinds)) < 2:
            return none
        step = frame[keys["step"]].bfill(axis="columns").iloc[:, 0].to_numpy()
        has_loss = frame[keys["loss"]].notna().any(axis="columns").to_numpy()
        reached = np.fmax.accumulate(np.where(has_loss, step, np.nan))
        coming = np.fmin.accumulate(np.where(has_loss, step, np.nan)[::-1])[::-1]
        times = [key for name in ("step_time_s", "data_time") for key in keys.get(name, ())]
        settings = [key for name in ("lr", "grad_norm") for key in keys.get(name, ())]
        result = none.copy()
        for kind in np.unique(kinds):
            rows = kinds == kind
            if has_loss[rows].any() or not times or frame.loc[rows, times].isna().all(axis=None):
                continue
            if settings and frame.loc[rows, settings].notna().any(axis=None):
                continue
            if ((step[rows] < reached[rows]) | (step[rows] > coming[rows])).mean() > 0.5:
                result |= rows
        return result

    def _use_training_steps(self, frame: pd.DataFrame, is_validation: Any) -> None:
        """Give validation records the step of the training record before them where their counter is their own."""
        steps = [key for key, meaning in self._raw.meanings.items() if meaning.field == "step" and key in frame]
        if not steps:
            return
        step = frame[steps].bfill(axis="columns").iloc[:, 0]
        before = step.mask(is_validation).ffill()
        coming = step.mask(is_validation).bfill()
        is_own = is_validation & ((step < before) | (before.isna() & (step > coming)))
        if not is_own.any() or not (~is_validation).any():
            return
        for key in steps:
            frame[key] = frame[key].mask(is_own)
        frame[steps[0]] = frame[steps[0]].fillna(before.where(is_own))

    def _keys_of(self, frame: pd.DataFrame, *fields: str) -> list[str]:
        """Return the keys that mean one of these columns."""
        return [key for key, meaning in self._raw.meanings.items() if meaning.field in fields and key in frame]

    def _drop_epoch_means(self, frame: pd.DataFrame) -> None:
        """Drop the measurements of records with an epoch and no step, in a log whose other records have steps."""
        steps, epochs = self._keys_of(frame, "step"), self._keys_of(frame, "epoch")
        measured = self._keys_of(frame, *(METRICS - {"val_loss", "lr"}))
        if not steps or not measured:
            return
        has_step = frame[steps].notna().any(axis="columns")
        is_measured = frame[measured].notna().any(axis="columns")
        whole = is_measured & ~has_step & (frame[epochs].notna().any(axis="columns") if epochs else False)
        if whole.any() and (has_step & is_measured).sum() > whole.sum():
            frame.loc[whole, measured] = np.nan
            self.notes.append(f"records of whole epochs, of which only the validation is used: {int(whole.sum())}")

    def _drop_times_of_validation(self, frame: pd.DataFrame) -> None:
        """Drop the time of records that have only a validation loss: it includes the validation."""
        losses, val_losses = self._keys_of(frame, "loss"), self._keys_of(frame, "val_loss")
        times = self._keys_of(frame, "elapsed_s")
        if losses and val_losses and times:
            only = frame[val_losses].notna().any(axis="columns") & frame[losses].isna().all(axis="columns")
            frame.loc[only, times] = np.nan

    def _columns(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Choose the key of each known column; other keys keep their own names."""
        by_field: dict[str, list[str]] = {}
        for key, meaning in self._raw.meanings.items():
            if key in frame and meaning.gpu is None:
                by_field.setdefault(meaning.field, []).append(key)
        columns: dict[str, Any] = {}
        used: set[str] = set()
        for name in FIELDS:
            keys = sorted(by_field.get(name, ()), key=lambda key: self._raw.meanings[key].preference)
            keys = [key for key in keys if frame[key].notna().any()]
            if not keys:
                continue
            if name in _POSITIONS:
                used.update(keys)
                keys = _order_counters(frame, keys, self._keys_of(frame, "epoch")) if name == "step" else keys
                if not keys:
                    continue
                column = frame[keys[0]]
                for key in keys[1:]:
                    column = column.fillna(frame[key])
            else:
                counts = {key: int(frame[key].notna().sum()) for key in keys}
                most = max(counts.values())
                best = next(key for key in keys if 2 * counts[key] >= most)
                if self._is_one_of_several(name, best, keys, frame):
                    continue
                column = frame[best]
                used.add(best)
                self._sources[name] = best, self._raw.meanings[best]
                if best in self._raw.unknown_units:
                    self._raw.unknown_units.add(name)
            columns[name] = column.astype("float64")
        gpus = {
            meaning.gpu: key for key, meaning in self._raw.meanings.items() if meaning.gpu is not None and key in frame
        }
        for gpu in sorted(gpus):
            columns[f"gpu_util_{gpu}"] = frame[gpus[gpu]].astype("float64")
            used.add(gpus[gpu])
        for key in frame.columns:
            if key not in used and (not str(key).startswith("_") or key == "_per_s") and key not in columns:
                columns[str(key)] = frame[key]
        if "_rank" in frame and "rank" not in columns:
            columns["rank"] = frame["_rank"]
        if "_time" in frame and "timestamp" not in columns:
            columns["timestamp"] = frame["_time"]
        # a copy is one block: pandas warns of many blocks when columns are added
        return import_pandas().DataFrame(columns, index=frame.index, copy=len(columns) > _MAX_BLOCKS)

    def _is_one_of_several(self, name: str, best: str, keys: Sequence[str], frame: pd.DataFrame) -> bool:
        """Return whether the best key of a column is a part, or one of several of equal right, and note it."""
        if name in ("val_loss", "lr", "grad_norm"):
            sets = [key for key in keys if self._raw.meanings[key].preference >= ONE_DATA_SET]
            if best in sets and len(sets) > 1:
                self.notes.append(f"{', '.join(sets[:3])}: several of equal right, so none is {name}")
                return True
        if name in ("loss", "val_loss") and is_part(best):
            at = frame[best].notna()
            others = [
                key
                for key in map(str, frame.columns)
                if is_loss(key) and key not in keys and frame[key][at].notna().any()
                and (of_validation(key) if name == "val_loss" else not is_other_loss(key))
            ]  # fmt: skip
            if others:
                self.notes.append(f"{best}, {', '.join(others[:3])}: parts of a loss whose sum is not in the log")
                return True
        return False

    def _units(self, table: pd.DataFrame) -> pd.DataFrame:
        """Guess the units that the log does not give, by the size of the values, and add a note."""
        unknown = self._raw.unknown_units
        if "memory" in table and "memory" in unknown and _is_in_any_unit(table["memory"]):
            table = table.rename(columns={"memory": f"{self._sources['memory'][0]} (unit unknown)"})
            self.notes.append("memory: no unit in the log, and numbers that may be MiB or GiB")
        if "memory" in table and "memory" in unknown:
            largest = table["memory"].max()
            scale, unit = (2.0**-30, "bytes") if largest > 1e6 else (2.0**-10, "MiB") if largest > 256 else (1.0, "GiB")
            table["memory"] *= scale
            self.notes.append(f"memory: no unit in the log, read as {unit}")
        if "memory" in table and table["memory"].max() > _MAX_MEMORY_GIB:
            table["memory"] *= 2.0**-20
            self.notes.append("memory: too large for MiB, read as bytes")
        if "timestamp" in table and table["timestamp"].max() > 1e11:  # milliseconds since 1970
            table["timestamp"] /= 1e3
        if "step_time_s" in table and table["step_time_s"].min() > 1e8:  # the key "time" held a date
            table["timestamp"] = table.pop("step_time_s")
        per_gpu = [name for name in table if str(name).startswith("gpu_util_") and str(name)[9:].isdigit()]
        if per_gpu:
            table["gpu_util"] = table[per_gpu].mean(axis="columns")
        for name in ("gpu_util", *per_gpu, "mfu"):
            if name in table:
                values = table[name].where(table[name] >= 0)
                is_fraction = 0 < values.max() <= 1.0 and (values.dropna() % 1 != 0).any()
                if is_fraction and not _has_unit(self._raw, name):
                    values *= 100
                table[name] = values
        return table

    def _fill_steps(self, table: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
        """Give every record a step: its own, else that of the record before it, else the epoch or its number."""
        if "rank" in table:
            ranks = table["rank"].dropna().unique()
            self._has_unranked = bool(table["rank"].isna().any())
            if len(ranks) == 1:
                table["rank"] = ranks[0]
        if "step" not in table or not table["step"].notna().any():
            if "epoch" in table and _is_epoch_unique(table):
                table["step"] = table["epoch"]
                self._by_epoch = True
                self.notes.append("no step in the log: the epoch is used as the step")
            else:
                ranked = table.groupby("rank", dropna=False).cumcount() if "rank" in table else np.arange(len(table))
                table["step"] = ranked + 1.0
                if "epoch" in table and table["epoch"].notna().all():
                    self._by_epoch = bool(table.groupby("epoch").size().max() <= _MAX_PER_EPOCH)
                self.notes.append("no step in the log: the records are numbered")
            self._no_steps = True
            return table
        if "epoch" in table:
            self._continue_steps(table, frame)
        elif self._raw.has_bars and "_of" in frame and "rank" not in table:
            self._continue_bars(table, frame)
        if table["step"].isna().any():
            table["step"] = (table.groupby("rank", dropna=False)["step"] if "rank" in table else table["step"]).ffill()
            dropped = int(table["step"].isna().sum())
            table = table[table["step"].notna()]
            if dropped:
                self.notes.append(f"records before the first step, dropped: {dropped}")
        return table

    def _continue_steps(self, table: pd.DataFrame, frame: pd.DataFrame) -> None:
        """Number steps through all epochs if the log restarts them in each epoch."""
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
        restarted = least[1:] <= most[:-1] if "_of" in frame else least[1:] < most[:-1]
        has_total = (
            "_of" in frame and frame["_of"][known].nunique() == 1 and (table["step"] <= frame["_of"])[known].all()
        )
        if not restarted.any() or (restarted.mean() < 0.8 and not has_total):
            return
        total = frame["_of"][known].max() if "_of" in frame else np.nan
        length = total if total == total and total >= step.max() else step.max() + (step.min() == 0)
        table["step"] += ((table["epoch"] - epoch.min()) * length).where(known, 0.0)
        self.notes.append(f"steps restart in each epoch: numbered through, {length:.0f} steps per epoch")

    def _continue_bars(self, table: pd.DataFrame, frame: pd.DataFrame) -> None:
        """Number the steps of a bar that starts again, in each epoch, through."""
        step = table["step"].dropna()
        before = step.shift()
        passes = ((step <= before / 2) & (step < before)).cumsum()  # a bar may be drawn several times per step
        length = frame["_of"].max()
        if len(step) and passes.iloc[-1] and length >= step.max() and (frame["_of"].dropna() == length).all():
            table["step"] += (passes * length).reindex(table.index).fillna(0.0)
            self.notes.append(f"the bar starts again: steps are numbered through, {length:.0f} per pass")

    def _drop_repeated_validations(self, table: pd.DataFrame) -> None:
        """Keep only the first of equal validation losses beside training losses: a bar shows the last one again."""
        if self._raw.has_bars and {"loss", "val_loss"} <= set(table):
            known = table["val_loss"].dropna()
            again = table["val_loss"].index.isin(known.index[known == known.shift()]) & table["loss"].notna()
            if "rank" not in table and again.any():
                table["val_loss"] = table["val_loss"].mask(again)
                self.notes.append(f"val_loss: shown again in {int(again.sum())} records, only the first is used")

    def _drop_spoiled_times(self, table: pd.DataFrame) -> None:
        """Drop the times that include a validation, or of which the log says that they may."""
        parts = [key for key in table if normalize_key(str(key)) in _OTHER_WORK]
        if parts:
            spoiled = (table[parts] > 0).any(axis="columns")
            for name in ("step_time_s", "tokens_per_s"):
                if name in table and (spoiled & table[name].notna()).any():
                    table[name] = table[name].mask(spoiled)
                    self.notes.append(f"{name}: may include validation or saving in {int(spoiled.sum())} records")
        for name, (key, _) in self._sources.items():
            if key in self._raw.spoiled_by_validation and {name, "val_loss"} <= set(table):
                spoiled = table["val_loss"].notna() & table[name].notna()
                table[name] = table[name].mask(spoiled)
                if spoiled.any():
                    self.notes.append(f"{name}: includes the validation in {int(spoiled.sum())} records, dropped there")

    def _rename_environment_rates(self, table: pd.DataFrame) -> pd.DataFrame:
        """Rename the rates of a log that counts the steps of an environment: they are not of training."""
        if not any(_ENVIRONMENT.search(normalize_key(str(key))) for key in self._raw.keys):
            return table
        self._no_steps = True  # nothing is derived from the time between the records
        rates = [name for name in ("throughput", "steps_per_s") if name in table]
        if rates:
            self.notes.append("rates of an environment's steps are no rates of training")
        return table.rename(columns={name: f"{self._sources[name][0]} (environment)" for name in rates})

    def _drop_superseded(self, table: pd.DataFrame) -> pd.DataFrame:
        """Drop the records that a run repeats, and those behind them, when it begins again at an earlier step.

        Mixed with those of the new beginning they would be the course of no run.
        """
        if self._raw.has_bars or self._no_steps or ("rank" in table and table["rank"].nunique(dropna=False) > 1):
            return table
        steps = table["step"].to_numpy()
        at = np.flatnonzero(table["loss"].notna()) if "loss" in table else np.arange(len(table))
        step = steps[at]  # other records may have a counter of their own
        falls = np.flatnonzero(np.diff(step) < 0) + 1
        if not len(falls) or len(falls) > max(_MAX_RESTARTS * len(step), 1):
            return table
        keep = np.ones(len(table), dtype=bool)
        for begin, end in zip(falls, [*falls[1:], len(step)], strict=True):
            part = np.unique(step[begin:end])
            if len(part) >= _MIN_RESTART and np.isin(part, step[:begin]).any():
                keep[: at[begin]] &= steps[: at[begin]] < part[0]
        dropped = int((~keep).sum())
        if dropped:
            self.repeated = dropped
            self.notes.append(
                f"steps logged again later by a run that begins again: {dropped} records before are not used"
            )
        return table[keep]

    def _merge(self, table: pd.DataFrame) -> pd.DataFrame:
        """Join the records of one step and rank into a row; of repeated values the last wins."""
        keys = ["rank", "step"] if "rank" in table else ["step"]
        order = table.groupby("rank", dropna=False)["step"] if "rank" in table else table["step"]
        self.out_of_order = int((table["step"] < order.cummax()).sum())
        repeated = each = 0
        if table.duplicated(keys).any():
            measured = [name for name in table if name in FIELDS and name not in (*_POSITIONS, "elapsed_s")]
            counts = table.groupby(keys, sort=False, dropna=False)[measured].count()
            loss = next((name for name in ("loss", "val_loss") if name in counts), None)
            times_logged = counts[loss] if loss is not None else counts.max(axis="columns")
            repeated = int((times_logged - 1).clip(lower=0).sum())
            each = _times_of_each(times_logged)
            if each and self._has_unranked and "rank" in table:
                keys = ["step"]
                table = table.drop(columns="rank")  # the records of a step may be of several ranks
            table = table.groupby(keys, sort=True, dropna=False, as_index=False).last()
        elif self.out_of_order or "rank" in table:
            table = table.sort_values(keys, kind="stable")
        self.repeated += repeated
        if repeated and each and not self._raw.has_bars:
            self.notes.append(
                f"each step is logged {each} times (ranks without a label, or micro-batches), the last record is kept"
            )
        elif repeated:
            self.notes.append(f"steps logged again later, the last record is kept: {repeated}")
        elif self.out_of_order:
            self.notes.append(f"records out of order, sorted by step: {self.out_of_order}")
        return table.reset_index(drop=True)


def _is_in_any_unit(memory: Any) -> bool:
    """Return whether a memory without a unit is a whole number that may be one of MiB, and one of GiB."""
    known = memory.dropna()
    return bool(len(known) and (known % 1 == 0).all() and 0 < known.max() <= _MAX_GIB_OF_A_DEVICE)


def _times_of_each(times_logged: Any) -> int:
    """Return how often each step was logged if that is the same number for nearly all; 0 if it is not, or once."""
    known = times_logged[times_logged > 0]
    most = int(known.mode().iloc[0]) if len(known) >= _MIN_CONSTANT else 0
    return most if most > 1 and (known == most).mean() >= 0.9 else 0


def _order_counters(frame: pd.DataFrame, keys: list[str], epochs: list[str]) -> list[str]:
    """Return the keys of a step without those that never change, first one that never falls if another one does.

    A counter that stands at the same place of every epoch (``epoch:3 iter:0/18``) is one.
    """
    known = {key: frame[key].dropna() for key in keys}
    moving = [
        key
        for key in keys
        if len(known[key]) < _MIN_CONSTANT or known[key].nunique() > 1 or _is_once_per_epoch(frame, key, epochs)
    ]
    if len(moving) < 2 or "_rank" in frame:
        return moving
    falls = {key: bool((known[key].diff() < 0).any()) for key in moving}
    steady = [key for key in moving if not falls[key] and 2 * len(known[key]) > len(known[moving[0]])]
    return steady + [key for key in moving if key not in steady] if falls[moving[0]] and steady else moving


def _is_once_per_epoch(frame: pd.DataFrame, key: str, epochs: list[str]) -> bool:
    """Return whether the length of the epoch is printed beside a counter, and each epoch has one record with it."""
    if "_of" not in frame or not epochs:
        return False
    rows = frame[frame[key].notna()]
    epoch = rows[epochs].bfill(axis="columns").iloc[:, 0]
    is_within = bool((rows[key] < rows["_of"]).all()) and rows["_of"].nunique() == 1
    return is_within and bool((epoch.diff().iloc[1:] > 0).all())


def _is_epoch_unique(table: pd.DataFrame) -> bool:
    """Return whether every record has an epoch, and no two losses the same one."""
    if "rank" in table and table["rank"].nunique() > 1:
        return False
    epoch = table["epoch"]
    losses = epoch
    if "loss" in table:
        losses = epoch[table["loss"].notna()]
    elif "val_loss" in table:  # a mean of the training under its own name beside it
        is_result = table["val_loss"].notna()
        losses = epoch[is_result]
        if not epoch[~is_result].is_unique:
            return False
    return bool(epoch.notna().all() and losses.is_unique and len(losses))


def _has_unit(raw: RawRecords, name: str) -> bool:
    """Return whether the log gives the unit of a share. Keys of GPU utilisation imply ``%`` and are no evidence."""
    return not name.startswith("gpu_util") and any(
        meaning.field == name and key not in raw.unknown_units for key, meaning in raw.meanings.items()
    )


def _derive(
    table: pd.DataFrame, notes: list[str], counted: bool, sources: Mapping[str, tuple[str, Meaning]]
) -> pd.DataFrame:
    """Add step time, throughput and elapsed time where other columns give them, each with a note.

    ``counted`` is False if the steps are not from the log.
    """

    def add(name: str, values: Any, formula: str) -> None:
        if name not in table and values.notna().any():
            table[name] = values
            notes.append(f"{name} = {formula}")

    pd = import_pandas()
    steps = table["step"].diff()
    if "steps_per_s" in table and not is_precise(table["steps_per_s"]):
        if "step_time_s" not in table:
            notes.append("steps per second: too few digits to derive a step time")
    elif "steps_per_s" in table:
        add("step_time_s", 1 / table["steps_per_s"].where(table["steps_per_s"] > 0), "1 / steps per second")
    one_rank = "rank" not in table or table["rank"].nunique(dropna=False) <= 1
    if "elapsed_s" in table and one_rank and counted:  # a record's number says nothing about the steps between
        seconds = table["elapsed_s"].diff()
        keys = [sources[name][0] for name in ("elapsed_s", "step_time_s") if name in sources]
        if "val_loss" in table and not any(
            "train" in key for key in keys
        ):  # the time until the next record includes the validation
            seconds = seconds.mask(table["val_loss"].notna().shift(fill_value=False))
        if "epoch" in table:  # a validation without a record, and an epoch whose length is not printed
            seconds = seconds.mask(np.floor(table["epoch"]).diff() > 0)
        if "loss" in table:  # the other records are of a validation, or of the end of the run
            seconds = seconds.mask(table["loss"].isna())
        if is_clock_precise(table["elapsed_s"]):
            add(
                "step_time_s",
                (seconds / steps).where((steps > 0) & (seconds > 0)),
                "elapsed time between records / steps between them",
            )
        elif "step_time_s" not in table:
            notes.append("elapsed time: too few digits to derive a step time")
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
    per_gpu = [name for name in table if str(name).startswith("gpu_util_")]
    rest = [name for name in table if name not in order and name not in per_gpu]
    table = table[[*order, *per_gpu, *rest]]
    for name in ("step", "rank", "epoch"):
        if (
            name in table
            and table[name].notna().all()
            and (table[name] % 1 == 0).all()
            and table[name].abs().max() < 2**53
        ):
            table = table.assign(**{name: table[name].astype("int64")})
    return table.dropna(axis="columns", how="all")
