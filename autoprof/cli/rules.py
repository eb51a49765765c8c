"""``autoprof rules``: run the defects of all rules and their healthy twins, and print the findings."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..errors import AutoprofError
from ._help import add_command

if TYPE_CHECKING:
    from ..diagnose import Defect, Rule
    from ..summary import Summary

SILENT: Final = "."
ABSTAINS: Final = "?"
FOUND: Final = "+"
VERDICT: Final = "V"
LEGEND: Final = (
    f"{VERDICT} the verdict, {FOUND} found as well, {SILENT} silent, {ABSTAINS} abstains: a signal is missing, or near "
    "its bound\nTime is that of a fake clock, the same on every machine. (fake device): no GPU is needed.\n"
    "(real clock): the process itself is measured, and the machine may add a finding of its own."
)


class DefectRun(NamedTuple):
    """A rule, one of its defects, and the summaries of the training with the defect and without it."""

    rule: Rule
    defect: Defect
    broken: Summary
    healthy: Summary

    @property
    def is_right(self) -> bool:
        """Whether the rule finds its defect and no rule finds anything in the healthy twin."""
        found_in_twin = {finding.rule for finding in self.healthy.findings if finding.severity != "info"}
        sign = _sign(self.broken, self.rule.name)
        if self.defect.setting == "real clock":  # the machine may add findings
            return sign in (VERDICT, FOUND) and self.rule.name not in found_in_twin
        return sign == VERDICT and not found_in_twin


def add(commands: Any) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "rules",
        help="run small trainings with one defect each, and print which rule finds it",
        description=(
            "Run small trainings with one defect each, and the same trainings without it, and print the findings of "
            "every rule. Takes a minute. Exit status: 0 if each defect is found and no healthy training has a finding, "
            "else 1."
        ),
        examples={
            "autoprof rules": "all defects",
            "autoprof rules data-wait optimizer": "those of two rules",
            "autoprof rules --json": "for a program",
        },
    )
    parser.add_argument("rule", nargs="*", help="only the defects of these rules, such as data-wait (default: all)")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from ..demo.rule_defects import defects_of
    from ..diagnose import find_rules

    rules = find_rules()
    unknown = [name for name in arguments.rule if name not in rules]
    if unknown:
        raise AutoprofError(f"autoprof rules: {unknown[0]!r} is no rule; allowed: {', '.join(rules)}")
    chosen = [rules[name] for name in arguments.rule] or list(rules.values())
    runs = [
        DefectRun(rule, defect, defect.train(True), defect.train(False))
        for rule in chosen
        for defect in defects_of(rule)
    ]
    if arguments.json:
        print(json.dumps([_record(run) for run in runs], indent=1))
    else:
        print("\n".join(render_rules(runs)))
    return 0 if all(run.is_right for run in runs) else 1


def render_rules(runs: list[DefectRun]) -> list[str]:
    """Return the tables: a line for each defect, then a line for each rule with its answer to each defect."""
    from .._core.units import format_ms
    from ..diagnose import find_rules

    lines = [f"{'':>3} {'defect':<33}{'verdict':<18}{'gain up to':>12}  healthy twin"]
    for number, run in enumerate(runs, 1):
        mark = "" if run.is_right else "  (wrong)"
        first = run.broken.findings[0]
        gain = format_ms(first.gain_ns) if first.gain_ns else "-"
        setting = "" if run.defect.setting == "fake clock" else f"  ({run.defect.setting})"
        verdicts = f"{_verdict(run.broken):<18}{gain:>12}  {_verdict(run.healthy):<8}{setting}{mark}"
        lines.append(f"{number:>3} {run.defect.name:<33}{verdicts}".rstrip())
    numbers = "".join(f"{number:>4}" for number in range(1, len(runs) + 1))
    lines += ["", f"{'rule':<17}{numbers}"]
    for rule in find_rules():
        lines.append(f"{rule:<17}" + "".join(f"{_sign(run.broken, rule):>4}" for run in runs))
    return [*lines, "", *LEGEND.split("\n")]


def _verdict(summary: Summary) -> str:
    first = summary.findings[0]
    return "nothing" if first.severity == "info" else first.rule


def _sign(summary: Summary, rule: str) -> str:
    for at, finding in enumerate(summary.findings):
        if finding.rule == rule:
            return ABSTAINS if finding.severity == "info" else FOUND if at else VERDICT
    return SILENT


def _record(run: DefectRun) -> dict[str, Any]:
    summaries = {"defect": run.broken, "healthy": run.healthy}
    findings = {word: summary.to_dict()["findings"] for word, summary in summaries.items()}
    return {"program": run.defect.name, "rule": run.rule.name, **findings}
