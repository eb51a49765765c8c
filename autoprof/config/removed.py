"""Keys and values of earlier versions that are refused, each with its replacement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .source import KeyPath, dotted

_EVERY: Final = "use sample.every, which chooses the recorded steps"
_FIXED: Final = "remove it: the time is fixed"

REMOVED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("deep.activities", "deep.memory", "deep.shapes", "deep.snapshot", "deep.stacks"),
        "use autoprof.deep_capture(model, …) around the steps, which has this option",
    ),
    "deep.window": "remove it: three steps are captured",
    "deep.max_mib": "remove it: a trace has at most a million events",
    "deep.patterns": "remove it: autoprof.compat.profiler_wrapper draws the calls of patterns",
    "deep.prefix": "remove it: the files are named by their steps",
    **dict.fromkeys(
        (f"memory_snapshot.{key}" for key in ("entries", "history", "max_mib", "stacks")),
        "remove it: the default is used",
    ),
    **dict.fromkeys(
        ("memory_snapshot.first", "memory_snapshot.window"),
        "use autoprof.deep_capture(model, snapshot=True) around the steps",
    ),
    **dict.fromkeys(
        (f"flight_recorder.{key}" for key in ("capture_on", "capture_steps", "max_captures", "max_mb")),
        "remove it: a file capture.request in the folder of a rank captures two steps",
    ),
    "sinks.console.interval_s": _FIXED,
    "sinks.console.line_interval_s": _FIXED,
    "sinks.csv": "remove it: autoprof.logs.load_logs(RUN).to_csv(FILE) writes a table of the records",
    "sinks.jsonl.every": _EVERY,
    "sinks.memory_plot.redraw_s": "remove it: the picture is drawn at the end; autoprof show RUN --memory-plot FILE "
    "draws it before",
    "sinks.mlflow": "use tensorboard, wandb or prometheus; docs/extending/sink.md adds a tracker of your own",
    "sinks.opentelemetry": "use prometheus, which the collector of OpenTelemetry scrapes",
    "sinks.ranks_trace": "remove it: autoprof show RUN --trace FILE writes one trace of all ranks",
    "sinks.report": "remove it: autoprof report RUN writes the page from the records",
    "sinks.speedscope": "use trace, which speedscope.app reads too",
    **dict.fromkeys(
        ("sinks.trace.first", "sinks.trace.max_mb"),
        "remove it: autoprof show RUN --steps 100:120 --trace FILE writes these steps from the records",
    ),
    "flops: trust": "use auto, or off",
    "ranges": "remove it: autoprof.deep_capture(model, …) shows the names in a trace of torch.profiler",
}
"""By dotted key, or ``key: value`` for one value of a key that remains."""


def replacement(key: KeyPath, value: object = None) -> str | None:
    """Return the sentence for a removed key, or a removed value of a key; None for any other."""
    name = dotted(key)
    found = REMOVED.get(name if value is None else f"{name}: {value}")
    if found is None:
        return None
    return f"{'the key' if value is None else repr(value)} was removed; {found}"
