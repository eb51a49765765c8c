"""A run as plain JSON for the page: figures as integers and codes, sentences as every other report phrases them."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

import numpy as np

from ...base.frame import Phase
from ...base.process.lifecycle import EXIT
from ...base.storage.runs import Run
from ...base.summary import Summary
from ..card import card_facts
from ..hot_tree import SELF, tree_rows
from ..memory_text import label
from ..run_facts import NOTHING, Fact, headline, run_facts
from ..stage_text import stage_text
from ..summary_text import render_summary
from ..text import safe
from .history import RunHistory, Times, read_history

Json = dict[str, Any]
TEXT_WIDTH: Final = 120
"""Cells of a line of the full report on the page."""


def run_payload(run: Run, summary: Summary, *, rank: int | None = None) -> Json:
    """Return one run; ``rank`` selects the records, None those of the lowest rank."""
    chosen = rank if rank is not None else run.ranks[0] if run.ranks else None
    history = None if chosen is None else read_history(run.rank_frames(chosen).path, summary)
    return {
        "name": safe(run.path.resolve().name),
        "about": _about(run),
        "headline": headline(summary),
        "empty": "" if summary.steps else NOTHING,
        "clockLimit": summary.clock_limit_ns,
        "steps": summary.steps,
        "allSteps": summary.all_steps,
        "p50": summary.step_p50_ns,
        "p95": summary.step_p95_ns,
        "most": summary.step_max_ns,
        "total": summary.total_step_ns,
        "phases": [[str(phase), ns] for phase, ns in summary.phases.items() if ns or phase is Phase.OTHER],
        "card": [[word, safe(text)] for word, text in card_facts(summary)],
        "findings": _findings(summary),
        "facts": [[word, safe(text)] for word, text in _facts(summary)],
        "text": "\n".join(render_summary(summary, width=TEXT_WIDTH)),
        "tree": _tree(summary),
        "rows": _rows(summary, history),
        "records": None if history is None or not history.steps else _history(history),
    }


def _facts(summary: Summary) -> list[Fact]:
    """Return the facts of the run, its stages first."""
    stages = [("stages", stage_text(summary))] if summary.stages and summary.steps else []
    return [*stages, *run_facts(summary)]


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


def _about(run: Run) -> list[list[str]]:
    info = run.info
    versions = ", ".join(f"{name} {version}" for name, version in info["versions"].items() if version)
    ended = info["ended"] or "not closed: the process was killed, or still runs"
    facts = (
        ("folder", str(run.path)),
        ("command", info["command"]),
        ("start", info["start"]),
        ("end", info["end"]),
        ("ended", "closed when the program ended" if ended == EXIT else ended),
        ("host", info["host"]),
        ("devices", ", ".join(map(str, info["devices"]))),
        ("ranks", info["world_size"]),
        ("versions", versions),
        ("configuration", json.dumps(info["config"], ensure_ascii=False) if info["config"] else None),
    )
    return [[key, safe(str(value))] for key, value in facts if value]


def _findings(summary: Summary) -> list[Json]:
    keys = "rule", "severity", "why", "next", "name", "phase", "rank", "gain_ns"
    found = [one for one in summary.findings if one.severity != "info"]
    return [{key: _shown(getattr(one, key)) for key in keys} for one in found]


def _rows(summary: Summary, history: RunHistory | None) -> Json:
    """Return the rows as columns, the longest first; the first ones have a history."""
    counts = "lane", "calls", "steps", "mean_ns", "p50_ns", "p95_ns", "max_ns", "total_ns", "self_ns"
    found: Json = {"parent": [] if history is None else history.parents}
    for column in ("name", "fqn", "phase", "share", *counts):
        found[column] = [_shown(getattr(row, column)) for row in summary.rows]
    return found


def _shown(value: Any) -> Any:
    return safe(str(value)) if isinstance(value, str) else value


def _history(history: RunHistory) -> Json:
    bins = history.bins
    return {
        "recorded": history.steps,
        "badLines": history.bad_lines,
        "stride": history.stride,
        "first": [one.first for one in bins],
        "last": [one.last for one in bins],
        "mean": _as_text(np.stack([one.mean() for one in bins], axis=1)),
        "most": _as_text(np.stack([one.most for one in bins], axis=1)),
        "phases": {str(phase): [round(one.phases[phase] / one.steps) for one in bins] for phase in Phase},
        "memory": {
            label(key): [one.memory.get(key) for one in bins]
            for key in dict.fromkeys(key for one in bins for key in one.memory)
            if key.endswith("_bytes")
        },
        "slow": [
            {
                "step": one.frame.step,
                "start": one.frame.start_unix_ns // 1_000_000,
                "ns": one.frame.step_ns,
                "phases": {str(phase): ns for phase, ns in one.frame.phase_ns().items() if ns},
                "rows": _as_text(one.times),
            }
            for one in history.slow
        ],
    }


def _as_text(times: Times) -> str:
    """Return times as base64 of little-endian 32-bit numbers: half the size of their digits."""
    return base64.b64encode(np.ascontiguousarray(times, dtype="<f4").tobytes()).decode("ascii")
