"""The table of one file, from its records: one row per step and rank, the columns of ``fields`` first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .fields import FIELDS, METRICS, POSITIONS, Meaning, normalize_key
from .records import Records

if TYPE_CHECKING:
    import pandas as pd

_MEASURED: Final = METRICS - {"val_loss"}


def build_table(records: Records) -> pd.DataFrame:
    """Return the table of the records of one file, at least one; notes for the user are added to the records."""
    import pandas as pd  # an extra, which the caller has found

    frame = pd.DataFrame(records.rows, dtype=float)
    _split_validation(frame, records)
    _drop_whole_epochs(frame, records)
    table = _drop_uncertain(_choose_columns(frame, records), records)
    table = _fill_steps(_fill_ranks(table, records), frame, records)
    table = _merge(_drop_superseded(table, records), records)
    _drop_spoiled(table, records)
    return _order(_with_elapsed(table))


def _keys(frame: pd.DataFrame, records: Records, *fields: str) -> list[str]:
    """Return the keys that mean one of these columns, the preferred ones first."""
    keys = [key for key, meaning in records.meanings.items() if meaning.field in fields and key in frame]
    return sorted(keys, key=lambda key: records.meanings[key].preference)


def _first_of(frame: pd.DataFrame, keys: list[str]) -> Any:
    """Return the first known value of these keys in each record."""
    return frame[keys].bfill(axis="columns").iloc[:, 0]


def _split_validation(frame: pd.DataFrame, records: Records) -> None:
    """Keep only the losses of validation records, as ``val_loss``, at the step of the training before."""
    if "_validation" not in frame:
        return
    is_validation = frame.pop("_validation").fillna(0) > 0
    for key in _keys(frame, records, *_MEASURED):
        if records.meanings[key].field == "loss" and frame[key][is_validation].notna().any():
            frame[f"val_{key}"] = frame[key].where(is_validation)
            records.add_meaning(f"val_{key}", Meaning("val_loss", 20))
        frame[key] = frame[key].mask(is_validation)
    steps = _keys(frame, records, "step")
    if steps:
        step = _first_of(frame, steps)
        before = step.mask(is_validation).ffill()
        is_own = is_validation & (step < before)
        frame[steps] = frame[steps].mask(is_own)
        frame[steps[0]] = frame[steps[0]].fillna(before.where(is_own))


def _drop_whole_epochs(frame: pd.DataFrame, records: Records) -> None:
    """Drop the measurements of records with an epoch and no step, in a log whose other records have steps."""
    steps, epochs, measured = (_keys(frame, records, *fields) for fields in (["step"], ["epoch"], _MEASURED))
    if steps and epochs and measured:
        whole = frame[steps].isna().all(axis="columns") & frame[epochs].notna().any(axis="columns")
        whole &= frame[measured].notna().any(axis="columns")
        if whole.any() and not whole.all():
            frame.loc[whole, measured] = np.nan
            records.notes.append(f"records of whole epochs, of which only the validation is used: {int(whole.sum())}")


def _choose_columns(frame: pd.DataFrame, records: Records) -> pd.DataFrame:
    """Choose the key of each known column; other keys keep their own names."""
    columns: dict[str, Any] = {}
    used: set[str] = set()
    for name in FIELDS:
        all_keys = _keys(frame, records, name)
        keys = [key for key in all_keys if frame[key].notna().any()]
        if not keys:
            continue
        if name in POSITIONS:
            used.update(all_keys)
            columns[name] = _first_of(frame, keys)
        else:
            best = max(keys, key=lambda key: 2 * frame[key].notna().sum() >= frame[keys].notna().sum().max())
            used.add(best)
            columns[name] = frame[best]
            if best in records.unknown_units or (name == "throughput" and normalize_key(best).endswith("throughput")):
                records.unknown_units.add(name)
    per_gpu = {key: meaning.field for key, meaning in records.meanings.items() if meaning.field.startswith("gpu_util_")}
    columns |= {name: frame[key] for key, name in per_gpu.items() if key in frame}
    used.update(per_gpu)
    for ours, theirs in (("rank", "_rank"), ("timestamp", "_time")):
        if theirs in frame:
            columns.setdefault(ours, frame[theirs])
    for key in frame.columns:
        if key not in used and not str(key).startswith("_"):
            columns[f"{key} (logged)" if key in columns or key in FIELDS else str(key)] = frame[key]
    return type(frame)(columns, index=frame.index, copy=True)


def _drop_uncertain(table: pd.DataFrame, records: Records) -> pd.DataFrame:
    """Rename the columns whose unit or meaning the log does not decide, with a note."""
    keys = " ".join(map(normalize_key, (*records.meanings, *map(str, table))))
    per_gpu = [name for name in table if str(name).startswith("gpu_util_")]
    if per_gpu and "gpu_util" not in table:
        table["gpu_util"] = table[per_gpu].mean(axis="columns")
    reasons: dict[str, str] = {}
    if "memory" in records.unknown_units:
        reasons["memory"] = "no unit in the log"
    for name in ("mfu", "gpu_util"):
        if name in table and name in records.unknown_units and 0 < table[name].max() <= 1:
            reasons[name] = "a share or per cent"
    # The `throughput` of a language model may be of tokens.
    if "throughput" in records.unknown_units and any(part in keys for part in ("tok", "ppl", "perplexity")):
        reasons["throughput"] = "of samples or of tokens"
    # In reinforcement learning rates are of the environment.
    if any(part in keys for part in ("timesteps", "env_step", "envinteracts", "episode", "reward")):
        reasons |= dict.fromkeys(("throughput", "steps_per_s"), "of an environment, or of the training")
    reasons = {name: reason for name, reason in reasons.items() if name in table}
    records.notes += [f"{name}: {reason}, so the column is absent" for name, reason in reasons.items()]
    table = table.rename(columns={name: f"{name} (uncertain)" for name in reasons})
    positive = [*{"throughput", "tokens_per_s", "step_time_s", "steps_per_s", "tflops", "mfu"} & {*table}]
    table[positive] = table[positive].where(table[positive] > 0)  # 0 is a placeholder
    is_rounded = "lr" in table and not table["lr"].any()
    return table.drop(columns="lr") if is_rounded else table


def _fill_ranks(table: pd.DataFrame, records: Records) -> pd.DataFrame:
    """Give the only rank to records without one; drop the column where several ranks leave it open."""
    if "rank" not in table or table["rank"].notna().all():
        return table
    unlabelled = table[table["rank"].isna() & table[[*METRICS & set(table)]].notna().any(axis="columns")]
    if table["rank"].nunique() > 1 or ("step" in table and unlabelled["step"].dropna().duplicated().any()):
        records.notes.append("rank: some records have none, so the column is absent")
        return table.drop(columns="rank")
    return table.assign(rank=table["rank"].max())


def _fill_steps(table: pd.DataFrame, frame: pd.DataFrame, records: Records) -> pd.DataFrame:
    """Give every record a step: its own, else that of the record before it, else the epoch or its number."""
    if "step" in table and "epoch" in table and not _continue_steps(table, frame, records):
        table = table.drop(columns="step")
        records.notes.append("steps restart in each epoch, and its length is not in the log")
    ranks = table["rank"] if "rank" in table else np.zeros(len(table))
    if "step" in table:
        known = table.assign(step=table["step"].groupby(ranks).ffill()).dropna(subset="step")
        if len(known) < len(table):
            records.notes.append(f"records before the first step, dropped: {len(table) - len(known)}")
        return known
    if "epoch" in table and (table["epoch"] % 1 == 0).all() and _is_unique(table):
        records.notes.append("no step in the log: the epoch is used as the step")
        return table.assign(step=table["epoch"])
    # a validation has no number of its own
    counted = table["loss"].notna() if "loss" in table else table.notna().any(axis="columns")
    records.notes.append("no step in the log: the records are numbered")
    return table.assign(step=counted.groupby(ranks).cumsum().clip(lower=1))


def _continue_steps(table: pd.DataFrame, frame: pd.DataFrame, records: Records) -> bool:
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
    if is_bounded:
        table["step"] += ((table["epoch"] - epoch.min()) * lengths[0]).where(known, 0.0)
        records.notes.append(f"steps restart in each epoch: numbered through, {lengths[0]:.0f} steps per epoch")
    return is_bounded


def _is_unique(table: pd.DataFrame) -> bool:
    """Return whether no two measured records have the same epoch and rank."""
    measured = [*_MEASURED & {*table}]
    rows = table[table[measured].notna().any(axis="columns")] if measured else table
    return not rows.duplicated([*{"epoch", "rank"} & {*table}]).any()


def _drop_superseded(table: pd.DataFrame, records: Records) -> pd.DataFrame:
    """Drop the records that a run which begins again at an earlier step repeats, and those behind them."""
    if "rank" in table and table["rank"].nunique(dropna=False) > 1:
        return table
    steps = table["step"].to_numpy()
    keep = np.ones(len(table), dtype=bool)
    for begin in np.flatnonzero(np.diff(steps) < 0) + 1:
        if steps[begin] in steps[:begin] and (steps[begin : begin + 2] <= steps[begin - 1]).all():
            keep[:begin] &= steps[:begin] < steps[begin]
    if not keep.all():
        count = int((~keep).sum())
        records.notes.append(
            f"steps logged again later by a run that begins again: {count} records before are not used"
        )
    return table[keep]


def _merge(table: pd.DataFrame, records: Records) -> pd.DataFrame:
    """Join the records of one step and rank into a row; of repeated values the last wins."""
    keys = ["rank", "step"] if "rank" in table else ["step"]
    order = table.groupby("rank")["step"] if "rank" in table else table["step"]
    out_of_order = int((table["step"] < order.cummax()).sum())
    if out_of_order:
        records.notes.append(f"records out of order, sorted by step: {out_of_order}")
    measured = [name for name in ("loss", "val_loss", "step_time_s") if name in table][:1]
    repeated = int(table.dropna(subset=measured).duplicated(keys).sum()) if measured else 0
    if repeated:
        records.notes.append(f"steps logged again later, the last record is kept: {repeated}")
    return table.groupby(keys, sort=True, as_index=False).last()


def _drop_spoiled(table: pd.DataFrame, records: Records) -> None:
    """Drop the values that include a validation."""
    name = records.tool.get("spoiled_by_validation")
    if name in table and "val_loss" in table:
        spoiled = table["val_loss"].notna() & table[name].notna()
        table[name] = table[name].mask(spoiled)
        if spoiled.any():
            records.notes.append(f"{name}: includes the validation in {int(spoiled.sum())} records, dropped there")


def _with_elapsed(table: pd.DataFrame) -> pd.DataFrame:
    """Add ``elapsed_s`` from the times of the records."""
    import pandas as pd

    # So many seconds are counted since 1970.
    if "elapsed_s" in table and table["elapsed_s"].min() > 1e8:  # TensorBoard's "Wall time" is a date
        elapsed = table.pop("elapsed_s")
        table["timestamp"] = table.get("timestamp", elapsed)
    if "timestamp" in table:
        seconds = table["timestamp"] / (1e3 if table["timestamp"].max() > 1e11 else 1)  # else milliseconds since 1970
        if "elapsed_s" not in table:
            table["elapsed_s"] = seconds - seconds.min()
        table["timestamp"] = pd.to_datetime((seconds * 1e6).round(), unit="us", errors="coerce")
    return table


def _order(table: pd.DataFrame) -> pd.DataFrame:
    """Return the columns in the order of ``FIELDS``, counters as whole numbers, without empty columns."""
    first = dict.fromkeys(("rank", "step", "epoch", "elapsed_s", "timestamp", *FIELDS))
    known = [name for name in first if name in table]
    table = table[[*known, *(name for name in table if name not in first)]]
    for name in ("step", "rank", "epoch"):
        if name in table and table[name].notna().all() and (table[name] % 1 == 0).all():
            table = table.assign(**{name: table[name].astype("int64")})
    return table.dropna(axis="columns", how="all")
