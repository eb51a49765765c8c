"""A run as plain JSON for the page: figures as integers and codes, sentences as every other report phrases them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any, Final

from ..._flight import describe_ranks, last_states, rank_table
from ..._process.lifecycle import EXIT
from ..._stats.rows import RowKey
from ..._storage.runs import Run
from ...compare import Comparison
from ...diagnose import RunFacts
from ...frame import Phase
from ...summary import Row, Summary
from ..card import card_facts, verdict
from ..comm_text import NO_ENDS, format_bandwidth, parts_text
from ..figures import phase_color
from ..memory_text import label
from ..run_facts import NOTHING, headline, run_facts
from ..shapes import phrase_shapes
from ..text import safe
from .call_tree import CallTree
from .codes import as_text
from .history import ROW_BINS, BinnedReadings, RecordedRow, RunHistory, histogram_of, read_history
from .rank_excess import rank_excess
from .rank_steps import MAX_RANKS, read_rank

Json = dict[str, Any]

ROW_BYTES: Final = 2_900_000
"""Bytes of text for the histories of all rows of a page; with 3,000 rows they have 96 bins each."""
_CODES_A_BIN: Final = 3
_TEXT_BYTES_A_CODE: Final = 8 / 3
"""A code has two bytes, and base64 makes four characters of three bytes."""
HISTOGRAM_BINS: Final = 24
MAX_LINES: Final = 12
"""Kinds of sampled time with their lines."""
SHAPE_SETS: Final = 400


def run_payload(run: Run, summary: Summary, *, rank: int | None = None, room: int = ROW_BYTES) -> Json:
    """Return one run; ``room`` is the number of bytes for the histories of its rows.

    ``rank`` selects the records; None: those of the lowest rank.
    """
    chosen = rank if rank is not None else run.ranks[0] if run.ranks else None
    bins = _row_bins(len(summary.rows), room)
    history = None if chosen is None else read_history(run.rank_frames(chosen).path, bins)
    found: Json = {
        "name": safe(run.path.resolve().name),
        "rank": chosen,
        "about": _about(run),
        "headline": headline(summary),
        "empty": "" if summary.steps else NOTHING,
        "clock": summary.clock,
        "clockLimit": summary.clock_limit_ns,
        "steps": summary.steps,
        "mean": summary.step_mean_ns,
        "p50": summary.step_p50_ns,
        "p95": summary.step_p95_ns,
        "most": summary.step_max_ns,
        "total": summary.total_step_ns,
        "phases": [[str(phase), ns] for phase, ns in summary.phases.items() if ns or phase is Phase.OTHER],
        "card": _card(summary),
        "facts": [[label_, safe(text)] for label_, text in run_facts(summary)],
        "notes": list(map(safe, summary.notes)),
        "whatIf": [_without(asdict(one)) for one in summary.what_if],
        "throughput": summary.throughput,
        "unit": summary.throughput_unit,
        "excluded": [[safe(one.kind), one.calls, one.total_ns] for one in summary.excluded],
        "memory": _memory(summary, history),
        "lines": _lines(run),
        "shapes": _shapes(summary),
        "ranks": _ranks(run),
        "flight": _last_states(run),
        "communication": _communication(summary),
    }
    rows = {} if history is None else {row.key: at for at, row in enumerate(history.rows)}
    found["rows"] = _rows(summary, history)
    found["tree"] = _recorded_tree(history.tree, rows) if history and history.tree.steps else _summary_tree(summary)
    if history is not None:
        found |= _history(history, room)
    return found


def _row_bins(rows: int, room: int) -> int:
    one = _CODES_A_BIN * _TEXT_BYTES_A_CODE * max(rows, 1)
    return next((bins for bins in ROW_BINS if bins * one <= room), ROW_BINS[-1])


def _communication(summary: Summary) -> Json | None:
    """Return the table of communication, its times per step; None where one process trains alone."""
    table = summary.communication
    if table is None:
        return None
    steps = max(table.steps, 1)
    rows = [
        {
            "kind": " ".join(filter(None, (one.kind, one.caller))),
            "group": f"{safe(one.group)} ×{one.ranks}",
            "phase": one.phase,
            "calls": round(one.calls / steps, 2),
            "message": one.bytes / max(one.calls, 1) if one.bytes else None,
            "time": one.ns / steps if one.timed else None,
            "exposed": one.exposed_ns / steps,
            "bus": format_bandwidth(one.bus_bytes_per_s),
        }
        for one in table.rows
    ]
    parts = {"compute": table.compute_ns / steps, "exposed": table.exposed_ns / steps, "idle": table.idle_ns / steps}
    return {
        "text": parts_text(table),
        "parts": parts,
        "step": table.step_ns / steps,
        "unassigned": table.unassigned_ns / steps,
        "note": NO_ENDS if table.overlapped_ns is None else "",
        "rows": rows,
    }


def _without(values: Mapping[str, Any]) -> Json:
    """Return the entries that are known."""
    return {key: value for key, value in values.items() if value is not None}


def _about(run: Run) -> list[list[str]]:
    info = run.info
    versions = ", ".join(f"{name} {version}" for name, version in (info.get("versions") or {}).items() if version)
    ended = info.get("ended") or "not closed: the process was killed, or still runs"
    ended = "closed when the program ended" if ended == EXIT else ended
    facts = (
        ("folder", str(run.path)),
        ("command", info.get("command")),
        ("start", info.get("start")),
        ("end", info.get("end")),
        ("ended", ended),
        ("host", info.get("host")),
        ("devices", ", ".join(map(str, info.get("devices") or ()))),
        ("ranks", f"{info.get('world_size') or 1}"),
        ("versions", versions),
        ("configuration", json.dumps(info["config"], ensure_ascii=False) if info.get("config") else None),
    )
    return [[key, safe(str(value))] for key, value in facts if value]


def _card(summary: Summary) -> Json:
    first = verdict(summary)
    findings = [
        {
            "rule": one.rule,
            "severity": one.severity,
            "why": safe(one.why),
            "next": safe(one.next),
            **_without(
                {
                    "name": None if one.name is None else safe(one.name),
                    "phase": None if one.phase is None else str(one.phase),
                    "rank": one.rank,
                    "gain": one.gain_ns,
                }
            ),
        }
        for one in summary.findings
        if one.severity != "info"
    ]
    unjudged = [
        [one.rule, safe(str(one.evidence.get("missing", one.why)))]
        for one in summary.findings
        if one.severity == "info"
    ]
    return {
        "severity": "none" if first is None else first.severity,
        "facts": [[label_, safe(text)] for label_, text in card_facts(summary)],
        "findings": findings,
        "unjudged": unjudged,
    }


def _rows(summary: Summary, history: RunHistory | None) -> Json:
    """Return the rows as columns: first those of the records, then those of the summary alone."""
    stats = {RowKey(row.name, row.phase, row.lane): row for row in summary.rows}
    recorded = () if history is None else history.rows
    known = {row.key for row in recorded}
    ids = {row.key: at for at, row in enumerate(recorded)}
    alone = [key for key in stats if key not in known]
    ids |= {key: len(recorded) + at for at, key in enumerate(alone)}
    every = [*recorded, *(RecordedRow(key, stats[key].fqn, _parent(stats[key], ids)) for key in alone)]
    texts: dict[str, int] = {}
    names = [texts.setdefault(safe(row.key.name), len(texts)) for row in every]
    fqns = [-1 if row.fqn is None else texts.setdefault(safe(row.fqn), len(texts)) for row in every]
    found: Json = {
        "texts": list(texts),
        "name": names,
        "fqn": fqns,
        "phase": [str(row.key.phase) for row in every],
        "lane": [row.key.lane for row in every],
        "parent": [row.parent for row in every],
    }
    columns = ("calls", "steps", "mean_ns", "p50_ns", "p95_ns", "min_ns", "max_ns", "total_ns", "self_ns", "share")
    for column in columns:
        found[column] = [None if (row := stats.get(one.key)) is None else _brief(getattr(row, column)) for one in every]
    for column in ("host_bound", "memory_growth_bytes", "memory_peak_bytes", "stopped"):
        values = {at: _brief(getattr(stats[one.key], column)) for at, one in enumerate(every) if one.key in stats}
        found[column] = {at: value for at, value in values.items() if value is not None}
    return found


def _brief(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def _parent(row: Row, ids: Mapping[RowKey, int]) -> int:
    """Return the row around a row, of the same phase where it has several."""
    if row.parent is None:
        return -1
    same = ids.get(RowKey(row.parent, row.phase, row.lane))
    if same is not None:
        return same
    return next((at for key, at in ids.items() if key.name == row.parent and key.lane == row.lane), -1)


def _recorded_tree(tree: CallTree, ids: Mapping[RowKey, int]) -> Json:
    return {
        "steps": tree.steps,
        "total": tree.step_ns,
        "other": tree.other_ns,
        "model": {str(phase): ns for phase, ns in tree.model_ns.items() if ns},
        "parent": [parent for parent, _ in tree.keys],
        "row": [ids.get(row, -1) for _, row in tree.keys],
        "ns": tree.total_ns,
        "calls": tree.calls,
    }


def _summary_tree(summary: Summary) -> Json:
    """Return the tree of a run without records, from its rows: a row has one place, below the row around it."""
    rows = sorted((row for row in summary.rows if row.lane == 0), key=lambda row: -row.total_ns)
    ids = {RowKey(row.name, row.phase, row.lane): at for at, row in enumerate(summary.rows)}
    places: dict[RowKey, int] = {}
    parents: list[int] = []
    for row in rows:
        parent = _parent(row, places)
        parents.append(parent)
        places[RowKey(row.name, row.phase, row.lane)] = len(places)
    roots = sum(row.total_ns for row, parent in zip(rows, parents, strict=True) if parent < 0)
    other = summary.phases.get(Phase.OTHER, 0)
    unnamed = summary.total_step_ns - other - roots
    return {
        "steps": summary.steps,
        "total": summary.total_step_ns,
        "other": other,
        "model": {str(Phase.FORWARD): unnamed} if unnamed > 0 else {},
        "parent": parents,
        "row": [ids[key] for key in places],
        "ns": [row.total_ns for row in rows],
        "calls": [row.calls for row in rows],
    }


def _history(history: RunHistory, room: int) -> Json:
    bins = history.row_bins
    kept = min(len(history.rows), int(room / (_CODES_A_BIN * _TEXT_BYTES_A_CODE * max(len(bins.first), 1))))
    return {
        "recorded": history.steps,
        "warmup": history.warmup,
        "badLines": history.bad_lines,
        "droppedRows": history.dropped_rows,
        "levels": [
            {
                "stride": level.times.stride,
                "first": _differences(level.times.first),
                "last": _differences(level.times.last),
                "p50": as_text(level.times.p50),
                "p95": as_text(level.times.p95) if level.times.stride > 1 else None,
                "most": as_text(level.times.most) if level.times.stride > 1 else None,
                "phases": {phase: as_text(codes) for phase, codes in level.phases.items()},
            }
            for level in _needed(history)
        ],
        "history": {
            "stride": bins.stride,
            "rows": kept,
            "first": _differences(bins.first),
            "last": _differences(bins.last),
            "p50": as_text(bins.p50[:, :kept].T),
            "p95": as_text(bins.p95[:, :kept].T) if bins.stride > 1 else None,
            "most": as_text(bins.most[:, :kept].T) if bins.stride > 1 else None,
        },
        "histograms": [_histogram(history, at) for at in range(len(history.rows))],
        "slow": [
            {
                "step": one.step,
                "start": one.start_unix_ns // 1_000_000,
                "ns": one.step_ns,
                "phases": {phase: ns for phase, ns in one.phases.items() if ns},
                "scalars": _finite(one.scalars),
                "rows": as_text(one.codes),
            }
            for one in history.slow
        ],
        "scalars": _readings(history.scalars),
    }


def _needed(history: RunHistory) -> Iterable[Any]:
    """Return the levels, without those as fine as the one before."""
    strides: set[int] = set()
    for level in history.levels:
        if level.times.stride not in strides:
            strides.add(level.times.stride)
            yield level


def _histogram(history: RunHistory, row: int) -> list[Any]:
    edge, ratio, counts = histogram_of(history.histograms[row], HISTOGRAM_BINS)
    return [round(edge), round(ratio, 4), *counts]


def _differences(steps: Sequence[int]) -> list[int]:
    """Return the first number and the differences: half the text of the numbers."""
    return [step - before for step, before in zip(steps, (0, *steps), strict=False)]


def _finite(scalars: Mapping[str, float]) -> Json:
    return {safe(name): known for name, value in scalars.items() if (known := _number(value)) is not None}


def _number(value: float | None) -> float | None:
    """Return a number with six digits; None for one that JSON has not."""
    return None if value is None or not isfinite(short := float(f"{value:.6g}")) else short


def _readings(readings: BinnedReadings) -> Json:
    series = {safe(name): list(map(_number, values)) for name, values in (readings.series or {}).items()}
    return {"steps": _differences(readings.steps), "series": series}


def _memory(summary: Summary, history: RunHistory | None) -> Json:
    whole, *names = summary.memory_table or (None,)
    found: Json = {
        "last": {label(key): value for key, value in summary.memory.items() if key.endswith("_bytes")},
        "whole": None if whole is None else _without(asdict(whole)),
        "names": [{**_without(asdict(row)), "name": safe(row.name or "")} for row in names],
        "unmeasured": {key: safe(reason) for key, reason in summary.unmeasured.items()},
    }
    if history is not None:
        readings = history.memory
        series = {label(key): values for key, values in (readings.series or {}).items() if key.endswith("_bytes")}
        found["history"] = _readings(BinnedReadings(readings.steps, series))
    return found


def _lines(run: Run) -> list[Json]:
    """Return the sampled lines of each kind of time, most time first, unattributed time before the others."""
    try:
        tables = RunFacts.of_run_info(run.info).stacks
    except (KeyError, TypeError, ValueError):  # facts of another version
        tables = {}
    kinds = sorted(tables.items(), key=lambda one: (one[0] != "unattributed", -one[1].ns))[:MAX_LINES]
    return [
        {
            "kind": safe(kind),
            "samples": table.samples,
            "ns": table.ns,
            "lines": [
                {
                    "where": safe(line.location),
                    "call": safe(line.call or line.function),
                    "source": safe(line.source),
                    "share": round(table.share(line), 4),
                    "count": line.count,
                }
                for line in table.lines
            ],
        }
        for kind, table in kinds
        if table.samples
    ]


def _shapes(summary: Summary) -> list[list[Any]]:
    return [
        [safe(one.name), one.step, safe(phrase_shapes(one.inputs)), safe(phrase_shapes(one.outputs))]
        for one in summary.shapes[:SHAPE_SETS]
    ]


def _ranks(run: Run) -> Json:
    world = run.info.get("world_size") or 1
    if world <= 1 and len(run.ranks) <= 1:
        return {"world": world, "missing": [], "ranks": []}
    read = [read_rank(run.rank_frames(rank).path, rank) for rank in run.ranks[:MAX_RANKS]]
    return {
        "world": world,
        "missing": sorted(set(range(world)) - set(run.ranks))[:MAX_RANKS],
        "hidden": max(len(run.ranks) - MAX_RANKS, 0),
        "excess": rank_excess(run, world),
        "ranks": [
            {
                "rank": one.rank,
                "steps": one.steps,
                "mean": round(one.mean_ns),
                "phases": {phase: round(ns) for phase, ns in one.phases.items()},
                "first": _differences(one.first),
                "bins": [round(ns) for ns in one.bins_ns],
            }
            for one in read
        ],
    }


def _last_states(run: Run) -> Json | None:
    """Return the last state of each rank of a run that was not closed, or in which a step did not end."""
    lines = last_states(run.path, run.info.get("world_size") or 1)
    if not lines:
        return None
    head, *rows = rank_table(lines)
    return {
        "verdict": safe(describe_ranks(lines).verdict),
        "head": head,
        "rows": [[safe(cell) for cell in row] for row in rows],
        "hidden": len(lines) - len(rows),
    }


def comparison_payload(comparison: Comparison | None, reason: str) -> Json:
    """Return a comparison, or the ``reason`` for which there is none."""
    if comparison is None:
        return {"reason": safe(reason)}
    data = comparison.to_dict()
    kept = ("whole", "phases", "rows", "memory", "added", "removed", "differences", "notes", "clock", "margin", "small")
    found = {key: data[key] for key in kept}
    for key in ("rows", "added", "removed", "memory"):
        for one in found[key]:
            one["name"] = safe(one["name"])
    return found


def phase_colors() -> dict[str, str]:
    """Return the colour of every phase."""
    return {str(phase): phase_color(phase) for phase in Phase}


def default_path(run: Run) -> Path:
    """Return the path of a run's page."""
    return run.path / "report.html"
