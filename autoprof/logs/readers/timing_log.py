"""autoprof's ``timing.log`` and the older ``timing_{timestamp}.log``: a section a step, a line a name.

The old logger's Total counts a nested part a second time, so it is not used: only a Total that closes (autoprof's) is
the step's time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..engine import Engine, need_pandas
from ..fields import Meaning
from ..numbers import parse_value
from ..source import Source
from .base import Raw

_STEP: Final = re.compile(r"^Step (\d+)\b")
_NAME: Final = re.compile(
    r"^(?P<indent>\s*(?:- )?)(?P<name>\S.*?)\s*:\s*<?(?P<ms>[\d.]+)ms(?: \(\s*<?[\d.]+%\))?(?: \[avg:\s*<?[\d.]+ms\])?"
)
_TOTAL: Final = re.compile(r"^Total-+:\s*(?P<ms>[\d.]+)ms")
_FACTS: Final = re.compile(r"(?<![\w.])([A-Za-z_]\w*)=([-+.\w]+)")
_MEMORY: Final = re.compile(r"\b(peak|rss) ([\d.]+ [KMGT]iB)")
_END: Final = re.compile(r"^Timing Summary")


@dataclass(frozen=True)
class TimingLog:
    """Sections of steps; a column for each name (its ms in that step), and the scalars of autoprof's last line."""

    name: str = "timing.log"

    def score(self, sample: Sequence[str]) -> float:
        """Count the lines of sections, where there is a section."""
        steps = sum(
            _STEP.match(line) is not None and at > 0 and set(sample[at - 1].strip()) == {"="}
            for at, line in enumerate(sample)
        )
        return 1.2 * sum(_NAME.match(line) is not None for line in sample) if steps else 0.0

    def read(self, source: Source, engine: Engine) -> Raw:
        """Read the file line by line: a section is no line, so the engine does not serve here."""
        raw, rows = Raw(self.name), list[dict[str, Any]]()
        row: dict[str, Any] | None = None
        path: list[str] = []
        n = 0
        for block in source.blocks():
            for line in block.split("\n"):
                n += 1
                if not line.strip():
                    continue
                raw.lines += 1
                step = _STEP.match(line)
                if step is not None:
                    row = {"_n": n, "step": float(step[1])}
                    rows.append(row)
                    raw.used_lines += 1
                elif _END.match(line):
                    row = None
                elif set(line.strip()) == {"="} or (row is not None and self._line(line, row, path, raw)):
                    raw.used_lines += 1
        raw.meanings |= {
            "step": Meaning("step", 0),
            "step_time_s": Meaning("step_time_s", 0),
            "memory": Meaning("memory", 0),
        }
        raw.meanings |= {key: Meaning(key, 0) for key in ("loss", "lr", "grad_norm", "samples")}
        if rows:
            raw.add(need_pandas().DataFrame(rows))
        return raw

    def _line(self, line: str, row: dict[str, Any], path: list[str], raw: Raw) -> bool:
        total = _TOTAL.match(line)
        if total is not None:
            if row.get("other (ms)") is not None:
                row["step_time_s"] = float(total["ms"]) / 1e3
            elif not raw.notes:
                raw.notes.append("its Total counts nested parts twice: it is not used as the step's time")
            return True
        name = _NAME.match(line)
        if name is not None:
            depth = (len(name["indent"]) - len(name["indent"].lstrip(" "))) // 2
            path[depth:] = [name["name"]]
            row[f"{'/'.join(path[: depth + 1])} (ms)"] = float(name["ms"])
            return True
        facts = _FACTS.findall(line)
        for key, text in facts:
            value = parse_value(text)
            if value is not None:
                row[key] = value.number
        for word, text in _MEMORY.findall(line):
            value = parse_value(text)
            if value is not None and (word == "peak" or "memory" not in row):
                row["memory"] = (
                    value.number / {"KiB": 2**20, "MiB": 2**10, "GiB": 1, "TiB": 2**-10}[value.unit or "GiB"]
                )
        return bool(facts) or " | autoprof " in line
