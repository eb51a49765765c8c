"""``autoprof rules``: what each rule says of a training with each defect, and of the healthy twin."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ..demo.defects import Program
    from ..summary import Summary

SILENT: Final = "."
ABSTAINS: Final = "?"
FOUND: Final = "+"
VERDICT: Final = "V"
LEGEND: Final = (
    f"{VERDICT} the verdict, {FOUND} found as well, {SILENT} silent, {ABSTAINS} abstains: a signal is missing, or near "
    "its bound\nTime is a fake clock's, the same on every machine; (fake device): so is the device, no GPU is needed;\n"
    "(real clock): the process takes its real course, and the machine may add a finding of its own"
)


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "rules",
        help="run small trainings with a defect each, and print which rule finds it",
        description=(
            "Run small trainings with a defect each, and their healthy twins, and print what every rule says of them. "
            "Takes a minute. Exit status: 0 when each defect is found and no twin is accused, else 1."
        ),
    )
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from ..demo.defects import PROGRAMS

    results = [(program, program.run(True), program.run(False)) for program in PROGRAMS]
    right = all(_is_right(*result) for result in results)
    if arguments.json:
        print(json.dumps([_record(*result) for result in results], indent=1))
    else:
        print("\n".join(render_rules(results)))
    return 0 if right else 1


def render_rules(results: list[tuple[Program, Summary, Summary]]) -> list[str]:
    """Return the tables: program by program, then every rule on every program."""
    from .._units import format_ms
    from ..diagnose import RULES

    lines = [f"{'':>3} {'defect':<33}{'verdict':<18}{'to be won':>12}  healthy twin"]
    for number, (program, broken, healthy) in enumerate(results, 1):
        mark = "" if _is_right(program, broken, healthy) else "  (wrong)"
        first = broken.findings[0]
        gain = format_ms(first.gain_ns) if first.gain_ns else "-"
        verdicts = f"{_verdict(broken):<18}{gain:>12}  {_verdict(healthy):<8}{_where(program)}{mark}"
        lines.append(f"{number:>3} {program.name:<33}{verdicts}".rstrip())
    numbers = "".join(f"{number:>4}" for number in range(1, len(results) + 1))
    lines += ["", f"{'rule':<17}{numbers}"]
    lines += [f"{rule:<17}" + "".join(f"{_cell(broken, rule):>4}" for _, broken, _ in results) for rule in RULES]
    return [*lines, "", *LEGEND.split("\n")]


def _is_right(program: Program, broken: Summary, healthy: Summary) -> bool:
    accused = {finding.rule for finding in healthy.findings if finding.severity != "info"}
    quiet = program.rule not in accused if program.on_machine else not accused
    return _cell(broken, program.rule) in ((VERDICT, FOUND) if program.on_machine else (VERDICT,)) and quiet


def _where(program: Program) -> str:
    return "  (fake device)" if program.on_fake_device else "  (real clock)" if program.on_machine else ""


def _verdict(summary: Summary) -> str:
    first = summary.findings[0]
    return "nothing" if first.severity == "info" else first.rule


def _cell(summary: Summary, rule: str) -> str:
    for at, finding in enumerate(summary.findings):
        if finding.rule == rule:
            return ABSTAINS if finding.severity == "info" else FOUND if at else VERDICT
    return SILENT


def _record(program: Program, broken: Summary, healthy: Summary) -> dict[str, Any]:
    said = {"defect": broken, "healthy": healthy}
    findings = {word: summary.to_dict()["findings"] for word, summary in said.items()}
    return {"program": program.name, "rule": program.rule, **findings}
