"""Find the rules, and let them judge a run: evidence → findings, those with the largest gain first."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Final

from .._core.plugins import PartKind
from ..summary import Finding, Summary
from ._contention import FIRM, QUIET, is_crowded
from ._evidence import Evidence
from ._rule import MIN_STEPS, Rule
from ._setting_notes import new_notes
from ._thresholding import abstain
from ._what_if import what_if

RULE_KIND: Final = PartKind("rule", "autoprof.diagnose.rules", "RULE", Rule)


@cache
def find_rules() -> dict[str, Rule]:
    """Return all rules by name, in their order; a rule of another package replaces no other one."""
    rules: dict[str, Rule] = {}
    for rule in RULE_KIND.parts.values():  # the built-in ones first
        rules.setdefault(rule.name, rule)
    return dict(sorted(rules.items(), key=lambda entry: (entry[1].order, entry[0])))


def judge(run: Evidence) -> tuple[Finding, ...]:
    """Return the findings by gain, then the abstentions; of a run without a recorded step there are no abstentions."""
    rules, steps = find_rules().values(), run.summary.steps
    few = abstain("", f"recorded steps: {MIN_STEPS} needed, {steps} so far", "let the run continue")
    found: list[Finding] = []
    crowded = is_crowded(run)
    for rule in rules:
        try:
            finding = None if steps < MIN_STEPS and rule.needs_steps else rule.judge(run)
        except Exception as error:  # the other package's code may raise anything
            RULE_KIND.exclude_failed(rule, error)
            continue
        if steps < MIN_STEPS and (finding is None or finding.severity == "info"):
            finding = replace(few, rule=rule.name)
        if finding is not None:
            finding = _on_busy_machine(rule, finding) if crowded else finding
            found.append(_without_device(rule, run, finding))
    found = [finding for finding in found if steps or finding.severity != "info"]
    enough = steps >= MIN_STEPS
    places = {rule.name: enough * (int(rule.comes_last) - int(rule.comes_first)) for rule in rules}
    return tuple(sorted(found, key=partial(_sort_key, places)))  # of equal keys in the order of their rules


def _without_device(rule: Rule, run: Evidence, finding: Finding) -> Finding:
    """Return the same abstention for all rules about devices where the model trains on the CPU."""
    on_cpu = run.summary.clock == "host" and run.facts.environment.device == "cpu"
    if not on_cpu or not rule.needs_device or finding.severity != "info" or finding.why.startswith("inconclusive"):
        return finding
    return abstain(rule.name, "a GPU", "nothing to do when the model trains on the CPU")


def _on_busy_machine(rule: Rule, finding: Finding) -> Finding:
    """Return an abstention of a rule whose finding other processes may have caused."""
    share, bound = finding.evidence.get("share_low"), finding.evidence.get("bound")
    near = rule.host_times and share is not None and bound is not None and share < FIRM * bound
    if finding.severity == "info" or not (rule.needs_quiet or near):
        return finding
    return abstain(rule.name, QUIET, "stop them and measure again", finding.evidence)


def _sort_key(places: dict[str, int], finding: Finding) -> tuple[bool, int, int, int]:
    place = places[finding.rule]
    return (
        finding.severity == "info",
        place,
        -(finding.gain_ns or 0),
        ("critical", "warning", "info").index(finding.severity),
    )


def diagnose(run: Evidence) -> Summary:
    """Return the summary with its findings, its what-if table and the notes on settings."""
    return replace(run.summary, findings=judge(run), what_if=what_if(run), notes=run.summary.notes + new_notes(run))
