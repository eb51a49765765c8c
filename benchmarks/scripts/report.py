"""From the results of the scripts to their page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ..table import markdown
from .registry import SCRIPTS, Script

INTRO: Final = """\
# Does `autoprof run` find the training in scripts of other projects?

**Result**: steps are right in {right} of {done} scripts

Training scripts of other authors run unchanged by [`autoprof run`](../../docs/run.md), without a configuration. A
`sitecustomize` counts the steps of each optimizer. Data is random and small where the script would download some.

*Steps* are right where the runs have as many steps as the script's optimizers made: with several optimizers in turn, as
many as the one that steps most often; with several one after another, as many as all of them. *Overhead* is the share
of the steps that autoprof measured itself.
"""


def page(results: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the page: a table of results, the sources and commands."""
    done = [script for script in SCRIPTS if "runs" in results.get(script.name, {})]
    right = sum(is_right(script, results[script.name]) for script in done)
    yield INTRO.format(right=right, done=len(done))
    header = ("script", "steps: counted → found", "overhead", "findings", "longest row")
    yield from markdown(header, (_row(script, results[script.name]) for script in done))
    missing = [f"{script.name} ({_reason(results.get(script.name))})" for script in SCRIPTS if script not in done]
    if missing:
        yield f"\nNo result: {'; '.join(missing)}."
    yield from ("", "## Where do the scripts come from?", "")
    yield from markdown(("script", "source", "data"), map(_source, SCRIPTS))
    yield from ("", "## How were they called?", "", "```")
    yield from (f"autoprof run {script.command}" for script in SCRIPTS)
    yield "```"


def _source(script: Script) -> tuple[str, ...]:
    source = f"[{script.repository}](https://github.com/{script.repository}/tree/{script.commit})"
    return script.name, f"{source} at `{script.commit}`", script.data


def _reason(result: Mapping[str, Any] | None) -> str:
    return "not run" if result is None else str(result["error"])


def is_right(script: Script, result: Mapping[str, Any]) -> bool:
    """Return whether each process's steps were found: those of its busiest optimizer, or of all, one after another."""
    if "runs" not in result:
        return False
    found = sum(int(one["steps"]) for one in result["runs"])
    several = not script.in_turn or len(result["runs"]) > len(result["counted"])
    return bool(found == sum(sum(counts) if several else max(counts) for counts in result["counted"]))


def _row(script: Script, result: Mapping[str, Any]) -> list[str]:
    counted = ", ".join(" and ".join(map(str, counts)) for counts in result["counted"]) or "none"
    found = " + ".join(str(one["steps"]) for one in result["runs"]) or "none"
    verdict = "" if is_right(script, result) else " **wrong**"
    runs: Sequence[Mapping[str, Any]] = result["runs"]
    overhead = ", ".join(dict.fromkeys(f"{100 * one['overhead']:.1f} %" for one in runs if one["overhead"] is not None))
    findings = [_finding(*finding) for one in runs for finding in one["findings"]]
    longest = [f"`{one['longest'][0]}` {one['longest'][1]}" for one in runs if one["longest"]]
    return [
        script.name,
        f"{counted} → {found}{verdict}",
        overhead,
        "<br>".join(dict.fromkeys(findings)) or "none",
        "<br>".join(dict.fromkeys(longest)),
    ]


def _finding(rule: str, name: str | None, phase: str | None) -> str:
    return " ".join([rule + (":" if name else ""), *([f"`{name}`"] if name else []), *([phase] if phase else [])])
