"""Render the comparison of all programs: a table for the terminal and a page of the docs."""

from collections.abc import Sequence
from typing import Final

from .registry import SECTIONS, Program
from .run import Result

INTRO: Final = """\
# Is the default right on the programs people write{busy}?

**Result**: {result}

`python -m tests.acceptance` runs small programs, each in a process of its own, with one line of autoprof and no
configuration. Their modules sleep for a known time in forward and in backward, and the program measures with its own
clock the figures that the report will state. A time is right within 5 % or 0.3 ms, a number of steps within 1, a
throughput within 2 %.{load} *Uncertain* is allowed only where the report itself says that other processes kept the
machine busy.
"""


def render_result(result: Result) -> str:
    """Return one program's line for the terminal, and a line for each comparison that is not right."""
    right = sum(check.verdict == "right" for check in result.checks)
    head = f"{result.verdict:9} {result.program.section:10} {result.program.name:40}"
    lines = [f"{head} {right}/{len(result.checks)} right, {result.seconds:.1f} s"]
    if result.error is not None:
        lines.append(f"          {result.error}")
    lines += [
        f"          {check.subject}: {check.reported}, truth {check.truth}"
        + (f" ({check.error})" if check.error else "")
        for check in result.checks
        if check.verdict != "right"
    ]
    return "\n".join(lines)


def render_verdicts(results: Sequence[Result]) -> str:
    """Return how many defects were named and how many healthy programs were accused; empty where none was run."""
    parts = []
    for section, right in (("defects", "named rightly"), ("healthy", "without an accusation")):
        of = [result.verdict for result in results if result.program.section == section]
        uncertain = of.count("uncertain")
        if of:
            doubt = f" ({uncertain} uncertain: the report calls the machine busy)" if uncertain else ""
            parts.append(f"{section}: {of.count('right')} of {len(of)} {right}{doubt}")
    return "; ".join(parts)


def render_totals(results: Sequence[Result], missing: Sequence[Program]) -> str:
    """Return the number of right, uncertain and wrong programs, by section."""
    lines = ["", f"{'section':12} {'programs':>8} {'right':>6} {'uncertain':>10} {'wrong':>6}"]
    for section in (*SECTIONS, "all"):
        of = [result for result in results if section in (result.program.section, "all")]
        if of:
            counts = [sum(result.verdict == verdict for result in of) for verdict in ("right", "uncertain", "wrong")]
            lines.append(f"{section:12} {len(of):8} {counts[0]:6} {counts[1]:10} {counts[2]:6}")
    lines += list(filter(None, [render_verdicts(results)]))
    lines += [f"not run: {entry.name} ({entry.missing} is not installed)" for entry in missing]
    return "\n".join(lines)


def render_page(results: Sequence[Result], missing: Sequence[Program], *, is_busy: bool = False, left: int = 0) -> str:
    """Return the page. ``is_busy``: each fourth program ran, two at a time, beside two busy processes.

    ``left`` programs were not begun: the time was over.
    """
    counted = {word: sum(result.verdict == word for result in results) for word in ("right", "uncertain", "wrong")}
    result = f"{counted['right']} of {len(results)} right, {counted['uncertain']} uncertain, {counted['wrong']} wrong"
    load = " Each fourth program ran, two at a time, beside two busy processes." * is_busy
    if left:
        load += (
            f" They ran in random order; the time was over before the last {left}, which `make acceptance` runs too."
        )
    text = [INTRO.format(result=result, busy=" on a busy machine" * is_busy, load=load), ""]
    text.append("| section | programs | right | uncertain | wrong |")
    text.append("|---|---|---|---|---|")
    for section in (*SECTIONS, "all"):
        of = [result for result in results if section in (result.program.section, "all")]
        counts = [sum(result.verdict == verdict for result in of) for verdict in ("right", "uncertain", "wrong")]
        if of:
            text.append(f"| {SECTIONS.get(section, 'all')} | {len(of)} | {' | '.join(map(str, counts))} |")
    verdicts = render_verdicts(results)
    text += ["", f"{verdicts[:1].upper()}{verdicts[1:]}."] if verdicts else []
    for section in SECTIONS:
        of = [result for result in results if result.program.section == section]
        if not of:
            continue
        text += ["", f"## {SECTIONS[section]}", "", "| program | figure: truth → reported | verdict |", "|---|---|---|"]
        text += [f"| {_cell(result.program.sentence)} | {_figures(result)} | {_verdict(result)} |" for result in of]
    if missing:
        text += ["", "Not run: " + "; ".join(f"{one.sentence} ({one.missing} is not installed)" for one in missing)]
    return "\n".join(text) + "\n"


def _figures(result: Result) -> str:
    return "<br>".join(_cell(f"{check.subject}: {check.truth} → {check.reported}") for check in result.checks)


def _verdict(result: Result) -> str:
    errors = [f"{check.subject} {check.error}" for check in result.checks if check.verdict != "right"]
    detail = _cell(result.error or "; ".join(errors))
    return result.verdict + (f": {detail}" if detail else "")


def _cell(text: str) -> str:
    escaped = text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
    return " ".join(escaped.split())
