"""From the results of the scripts to ``benchmarks/results/scripts.md``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .registry import SCRIPTS, Script

INTRO: Final = """\
# Does `autoprof run` find the training in scripts of other projects?

`python -m benchmarks.scripts --checkouts FOLDER` runs training scripts of other authors, unchanged: once bare
and once by [`autoprof run`](../../docs/run.md), without a configuration. A `sitecustomize` counts the steps of each
optimizer in both. Data is random and small where the script would download some.

*Steps* are right where the runs have as many steps as the script's optimizers made: with several optimizers in turn, as
many as the one that steps most often; with several one after another, as many as all of them. *Between steps* is the
median time from one optimizer step to the next, bare and with autoprof: on a busy machine it says little. *Overhead*
is the share of the steps that autoprof measured itself.
"""


def render_page(saved: Mapping[str, Any]) -> str:
    """Return the page: a summary, a table of results, the sources and commands."""
    results, machine = saved["results"], saved.get("machine", {})
    done = [script for script in SCRIPTS if "runs" in results.get(script.name, {})]
    right = sum(_is_right(script, results[script.name]) for script in done)
    lines = [INTRO]
    if machine:
        load = max((results[script.name]["load"] for script in done), default=0.0)
        lines.append(
            f"{machine['date']}, {machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, torch "
            f"{machine['torch']}, load average up to {load:.1f}. Steps are right in {right} of {len(done)} scripts.\n"
        )
    lines += ["| script | steps: counted → found | between steps, ms | overhead | findings | longest row |"]
    lines += ["|---|---|---|---|---|---|"]
    lines += [_row(script, results[script.name]) for script in done]
    missing = [f"{script.name} ({_reason(results.get(script.name))})" for script in SCRIPTS if script not in done]
    if missing:
        lines += ["", f"No result: {'; '.join(missing)}."]
    lines += ["", "## Where do the scripts come from?", "", "| script | source | data |", "|---|---|---|"]
    for script in SCRIPTS:
        source = f"[{script.repository}](https://github.com/{script.repository}/tree/{script.commit})"
        end = f"; Ctrl-C after {script.interrupt_s:.0f} s" if script.interrupt_s else ""
        lines.append(f"| {script.name} | {source} at `{script.commit}` | {script.data}{end} |")
    lines += ["", "## How were they called?", "", "```"]
    lines += [f"autoprof run {shlex.join(script.arguments)}" for script in SCRIPTS]
    lines += ["```", "", "Every result: `benchmarks/results/scripts.json`."]
    return "\n".join(lines) + "\n"


def _reason(result: Mapping[str, Any] | None) -> str:
    return "not run" if result is None else str(result["error"])


def _counted(result: Mapping[str, Any]) -> list[list[int]]:
    counted: list[list[int]] = result["autoprof"]["steps"]
    return counted


def _is_right(script: Script, result: Mapping[str, Any]) -> bool:
    """Return whether each process's steps were found: those of its busiest optimizer, or of all, one after another."""
    found = sum(int(one["steps"]) for one in result["runs"])
    several = not script.in_turn or len(result["runs"]) > len(_counted(result))
    return bool(found == sum(sum(counts) if several else max(counts) for counts in _counted(result)))


def _row(script: Script, result: Mapping[str, Any]) -> str:
    counted = ", ".join(" and ".join(map(str, counts)) for counts in _counted(result)) or "none"
    found = " + ".join(str(one["steps"]) for one in result["runs"]) or "none"
    verdict = "" if _is_right(script, result) else " **wrong**"
    between = f"{_ms(result['bare'])} → {_ms(result['autoprof'])}"
    runs: Sequence[Mapping[str, Any]] = result["runs"]
    overhead = ", ".join(dict.fromkeys(f"{100 * one['overhead']:.1f} %" for one in runs if one["overhead"] is not None))
    findings = [_finding(*finding) for one in runs for finding in one["findings"]]
    longest = [f"`{one['longest'][0]}` {one['longest'][1]}" for one in runs if one["longest"]]
    cells = [
        script.name,
        f"{counted} → {found}{verdict}",
        between,
        overhead,
        "<br>".join(dict.fromkeys(findings)) or "none",
        "<br>".join(dict.fromkeys(longest)),
    ]
    return f"| {' | '.join(cells)} |"


def _finding(rule: str, name: str | None, phase: str | None) -> str:
    return " ".join([rule + (":" if name else ""), *([f"`{name}`"] if name else []), *([phase] if phase else [])])


def _ms(result: Mapping[str, Any]) -> str:
    value = result["between_ms"]
    return "–" if value is None else f"{value:.1f}"
