"""Find the rules, and let them judge a run: evidence → findings, those with the largest gain first."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Final

from ..base.plugins import PartKind
from ..base.summary import Finding, LedgerEntry, Summary
from ._bounds import MIN_SHARE
from ._claims import settle
from ._contention import QUIET, conditions, is_crowded
from ._evidence import Evidence
from ._ledger import build_ledger, row_costs
from ._rule import MIN_STEPS, Rule
from ._setting_notes import setting_notes
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
    return diagnose(run).findings


def _judge(run: Evidence, ledger: tuple[LedgerEntry, ...]) -> tuple[Finding, ...]:
    rules, steps = find_rules(), run.summary.steps
    enough, crowded = steps >= MIN_STEPS, is_crowded(run)
    on_cpu = run.summary.clock == "host" and run.facts.environment.device == "cpu"
    few = abstain("", f"recorded steps ({MIN_STEPS} needed, {steps} so far)", "let the run continue")
    no_device = abstain("", "a GPU", "nothing to do when the model trains on the CPU")
    found: list[Finding] = []
    for rule in rules.values():
        try:
            absent = on_cpu and rule.needs_device
            finding = no_device if absent else rule.judge(run) if enough or not rule.needs_steps else None
        except Exception as error:  # the other package's code may raise anything
            RULE_KIND.exclude_failed(rule, error)
            continue
        if not enough and (finding is None or finding.severity == "info"):
            finding = few
        if crowded and finding is not None and _may_be_contention(rule, finding):
            finding = abstain(rule.name, QUIET, "stop them and measure again", finding.evidence)
        if finding is not None and (steps or finding.severity != "info"):
            found.append(replace(finding, rule=rule.name))

    def key(finding: Finding) -> tuple[bool, bool, bool, int]:
        first = enough and rules[finding.rule].comes_first
        return finding.severity == "info", finding.severity == "note", not first, -(finding.gain_ns or 0)

    found.sort(key=key)  # of equal keys in the order of their rules
    settled = settle(found, ledger, run.summary.step_mean_ns, rank=run.facts.rank)
    return tuple(sorted(settled, key=key))  # anew: others may have claimed most of a gain


def _may_be_contention(rule: Rule, finding: Finding) -> bool:
    """Return whether other processes may have caused a finding.

    Not where it has a rhythm, is far above its bound, is that of counted launches, or is of one line of the program:
    they add little to the share of one phase, and nothing to that of a line in it, because the wait for a processor is
    spread over all.
    """
    shown = finding.evidence
    has_place = shown.get("lines") and finding.name is not None
    is_certain = shown.get("every") is not None or shown.get("launched") or has_place
    if finding.severity == "info" or is_certain or not rule.host_times or "share_low" not in shown:
        return False
    return bool(shown["share_low"] < shown.get("bound", 0.0) + MIN_SHARE)


def diagnose(run: Evidence) -> Summary:
    """Return the summary with its findings, its what-if table, its conditions and the notes on settings."""
    under = tuple(conditions(run)) if run.summary.steps else ()
    run = replace(run, costs=row_costs(run))
    ledger = build_ledger(run)
    found = _judge(run, ledger)
    named = [one.name for one in found if one.severity != "info"]
    # Those of a saved summary are there already.
    notes = tuple(dict.fromkeys([*run.summary.notes, *setting_notes(run, named)]))
    return replace(run.summary, findings=found, ledger=ledger, what_if=what_if(run), notes=notes, conditions=under)
