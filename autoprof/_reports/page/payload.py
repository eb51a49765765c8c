"""A run as plain JSON for the page: figures as integers and codes, sentences as every other report phrases them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from ..._process.lifecycle import EXIT
from ..._ranks import RankComparison, compare_saved, phrase_slow
from ..._storage.runs import Run
from ...diagnose import RunFacts
from ...errors import OutputError
from ...frame import Phase
from ...summary import Summary
from ..card import card_facts, verdict
from ..hot_tree import SELF, tree_rows
from ..memory_text import label
from ..run_facts import NOTHING, headline, run_facts
from ..text import safe
from .history import RunHistory, Times, read_history

Json = dict[str, Any]


def run_payload(run: Run, summary: Summary, *, rank: int | None = None) -> Json:
    """Return one run; ``rank`` selects the records, None those of the lowest rank."""
    chosen = rank if rank is not None else run.ranks[0] if run.ranks else None
    history = None if chosen is None else read_history(run.rank_frames(chosen).path, summary.rows)
    return {
        "name": safe(run.path.resolve().name),
        "about": _about(run),
        "headline": headline(summary),
        "empty": "" if summary.steps else NOTHING,
        "clockLimit": summary.clock_limit_ns,
        "steps": summary.steps,
        "p50": summary.step_p50_ns,
        "p95": summary.step_p95_ns,
        "most": summary.step_max_ns,
        "total": summary.total_step_ns,
        "phases": [[str(phase), ns] for phase, ns in summary.phases.items() if ns or phase is Phase.OTHER],
        "card": _card(summary),
        "facts": [[word, safe(text)] for word, text in run_facts(summary)],
        "notes": list(map(safe, summary.notes)),
        "whatIf": [_known(asdict(one)) for one in summary.what_if],
        "unit": summary.throughput_unit,
        "tree": _tree(summary),
        "rows": _rows(summary, history),
        "memory": _memory(summary, history),
        "lines": _lines(run),
        "ranks": _ranks(run),
        "records": None if history is None or not history.steps else _history(history),
    }


def _tree(summary: Summary) -> list[Json]:
    """Return the rows of the tree of names, parents first, with their nanoseconds per step by phase."""
    return [
        {
            "name": safe(row.path),
            "label": safe(row.name),
            "depth": row.depth,
            "ns": round(row.total_ns),
            "parts": list(map(round, row.parts)),
            "phase": str(row.phase or Phase.OTHER),
            "calls": round(row.calls, 2),
        }
        for row in tree_rows(summary)
        if row.name != SELF
    ]


def _known(values: Mapping[str, Any]) -> Json:
    """Return the entries that are known."""
    return {key: value for key, value in values.items() if value is not None}


def _about(run: Run) -> list[list[str]]:
    info = run.info
    versions = ", ".join(f"{name} {version}" for name, version in (info.get("versions") or {}).items() if version)
    ended = info.get("ended") or "not closed: the process was killed, or still runs"
    facts = (
        ("folder", str(run.path)),
        ("command", info.get("command")),
        ("start", info.get("start")),
        ("end", info.get("end")),
        ("ended", "closed when the program ended" if ended == EXIT else ended),
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
        _known(
            {
                "rule": one.rule,
                "severity": one.severity,
                "why": safe(one.why),
                "next": safe(one.next),
                "name": None if one.name is None else safe(one.name),
                "phase": None if one.phase is None else str(one.phase),
                "rank": one.rank,
                "gain": one.gain_ns,
            }
        )
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
        "facts": [[word, safe(text)] for word, text in card_facts(summary)],
        "findings": findings,
        "unjudged": unjudged,
    }


def _rows(summary: Summary, history: RunHistory | None) -> Json:
    """Return the rows as columns, the longest first; the first ones have a history."""
    found: Json = {
        "name": [safe(row.name) for row in summary.rows],
        "fqn": [None if row.fqn is None else safe(row.fqn) for row in summary.rows],
        "phase": [str(row.phase) for row in summary.rows],
        "parent": [] if history is None else history.parents,
        "share": [round(row.share, 6) for row in summary.rows],
    }
    for column in ("lane", "calls", "steps", "mean_ns", "p50_ns", "p95_ns", "max_ns", "total_ns", "self_ns"):
        found[column] = [getattr(row, column) for row in summary.rows]
    return found


def _history(history: RunHistory) -> Json:
    p50, p95, most = history.times.result()
    return {
        "recorded": history.steps,
        "badLines": history.bad_lines,
        "stride": history.times.stride,
        "first": history.times.first,
        "last": history.times.last,
        "p50": _as_text(p50),
        "p95": _as_text(p95),
        "most": most[0].round().tolist(),
        "phases": {key: [round(one or 0) for one in ns] for key, ns in history.phases.result().items()},
        "slow": [
            {
                "step": one.step,
                "start": one.start_unix_ns // 1_000_000,
                "ns": one.step_ns,
                "phases": {phase: ns for phase, ns in one.phases.items() if ns},
                "rows": _as_text(one.times),
            }
            for one in history.slow
        ],
    }


def _as_text(times: Times) -> str:
    """Return times as base64 of little-endian 32-bit numbers: half the size of their digits."""
    return base64.b64encode(np.ascontiguousarray(times, dtype="<f4").tobytes()).decode("ascii")


def _memory(summary: Summary, history: RunHistory | None) -> Json:
    whole, *names = summary.memory_table or (None,)
    series = {} if history is None else history.memory.result()
    return {
        "last": {label(key): value for key, value in summary.memory.items() if key.endswith("_bytes")},
        "whole": None if whole is None else _known(asdict(whole)),
        "names": [{**_known(asdict(row)), "name": safe(row.name or "")} for row in names],
        "unmeasured": {key: safe(reason) for key, reason in summary.unmeasured.items()},
        "history": {
            "steps": [] if history is None else history.memory.steps,
            "series": {label(key): values for key, values in series.items() if key.endswith("_bytes")},
        },
    }


def _lines(run: Run) -> list[Json]:
    """Return the sampled lines of each kind of time, most time first, unattributed time before the others."""
    try:
        tables = RunFacts.of_run_info(run.info).stacks
    except (KeyError, TypeError, ValueError):  # facts of another version
        return []
    kinds = sorted(tables.items(), key=lambda one: (one[0] != "unattributed", -one[1].ns))[:12]
    return [
        {
            "kind": safe(kind),
            "samples": table.samples,
            "lines": [
                {
                    "where": safe(line.location),
                    "call": safe(line.call or line.function),
                    "source": safe(line.source),
                    "share": round(table.share(line), 4),
                }
                for line in table.lines
            ],
        }
        for kind, table in kinds
        if table.samples
    ]


def _ranks(run: Run) -> Json | None:
    """Return the comparison of the ranks, as saved or from their records: a sentence, and the excess by row."""
    world = run.info.get("world_size") or 1
    if world <= 1 and len(run.ranks) <= 1:
        return None
    data: Json = {"world": world, "missing": sorted(set(range(world)) - set(run.ranks))}
    found = compare_saved(run.path, world, _saved_comparison(run))
    if found.missing is not None or found.map is None:
        return {**data, "text": safe(f"The ranks could not be compared: {found.missing}")}
    text = "No rank is slow: the differences are within those of equal ranks"
    if found.slow:
        text = phrase_slow(found)
    elif found.unclear is not None:
        text = f"Inconclusive: {found.unclear}"
    return {
        **data,
        "text": safe(f"{text[0].upper()}{text[1:]}."),
        "slow": [one.rank for one in found.slow],
        "ranks": list(found.map.ranks),
        "rows": [[safe(name), phase] for name, phase in found.map.rows],
        "excess": [list(row) for row in found.map.by_row],
    }


def _saved_comparison(run: Run) -> RankComparison | None:
    try:
        return RunFacts.of_run_info(run.info).ranks
    except OutputError:  # facts of another version
        return None
