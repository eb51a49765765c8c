"""Compare a closed session's summary, files and printed report with the program's own clock."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Literal

import autoprof
from autoprof import Finding, Phase, Row, StepFrame, Summary
from autoprof.base.summary import OTHER_TARGETS
from autoprof.diagnose._contention import QUIET

from .clock import CLOCK, EXCLUDED, ProgramStep

Verdict = Literal["right", "uncertain", "wrong"]

RELATIVE: Final = 0.05
ABSOLUTE_MS: Final = 0.3
"""A time is right within either of these."""
OTHER_MS: Final = 0.6
"""The same for ``other``, which holds what autoprof itself does between the steps."""
RATE: Final = 0.02
"""A throughput is right within this fraction."""
WARMUP: Final = 3
"""Steps at the beginning that no figure rests on."""
PRINTED: Final = "printed.txt"
"""The file to which the process's output goes."""


@dataclass(frozen=True)
class Check:
    """One comparison: a figure's true and reported value as text, and how far they differ."""

    subject: str
    truth: str
    reported: str
    verdict: Verdict
    error: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return the check as plain JSON types."""
        return asdict(self)


class Judge:
    """Close a session and compare its figures. Every method adds a check and returns the judge."""

    def __init__(self, session: Any) -> None:
        session.close()
        self.summary: Summary = session.summary()
        self.checks: list[Check] = []

    # the report, as data and as text

    @cached_property
    def folder(self) -> Path | None:
        """The run's folder: the newest one below ``runs``."""
        folders = [path.parent for path in Path("runs").glob("*/run.json")]
        return max(folders, key=lambda path: path.stat().st_mtime_ns, default=None)

    @cached_property
    def printed(self) -> str:
        """Everything that the process has written to its standard output and error."""
        return Path(PRINTED).read_text(encoding="utf-8", errors="replace") if Path(PRINTED).exists() else ""

    @cached_property
    def all_text(self) -> str:
        """The printed report and ``summary.txt``, with the white space of line breaks removed."""
        saved = self.folder / "summary.txt" if self.folder else None
        text = self.printed + (saved.read_text(encoding="utf-8") if saved and saved.exists() else "")
        return re.sub(r"\s+", " ", text + " ".join(self.summary.notes))

    @cached_property
    def _frames(self) -> tuple[StepFrame, ...]:
        """The recorded steps of the run's folder, warm-up included."""
        return () if self.folder is None else tuple(autoprof.read_run(self.folder).frames)

    @cached_property
    def counted(self) -> Sequence[ProgramStep]:
        """The program's steps that the recorded ones are; all after the warm-up where that is unknown."""
        later = CLOCK.steps[WARMUP:] or CLOCK.steps
        middles = [_middle(frame) for frame in self._frames if not frame.warmup]
        found = [
            step for step in CLOCK.steps if any(step.start_unix_ns <= middle < step.end_unix_ns for middle in middles)
        ]
        return found if found and len(found) >= 0.9 * self.summary.steps else later

    @cached_property
    def trained(self) -> Sequence[ProgramStep]:
        """The program's steps from the end of the warm-up to the last recorded one; warm-up later on is left out.

        The report's figures of the whole run rest on these. The first steps after a gap are no warm-up for them.
        """
        counted: list[int] = []
        warmups: list[int] = []
        settling = False
        for frame in self._frames:
            settling = frame.gap_steps > 0 or (settling and frame.warmup)
            (warmups if frame.warmup and not settling else counted).append(_middle(frame))
        if not counted:
            return CLOCK.steps[WARMUP:] or CLOCK.steps
        return [
            step
            for step in CLOCK.steps
            if counted[0] < step.end_unix_ns
            and step.start_unix_ns <= counted[-1]
            and not any(step.start_unix_ns <= middle < step.end_unix_ns for middle in warmups)
        ]

    def rows(self, pattern: str, phase: str) -> list[Row]:
        """Return the rows of a phase whose whole name or fqn the pattern matches, without regard to ``.`` and ``/``."""
        matcher = re.compile(pattern)
        return [
            row
            for row in self.summary.rows
            if row.phase == phase
            and any(matcher.fullmatch(text.replace("/", ".")) for text in (row.name, row.fqn or "") if text)
        ]

    def found(self, rule: str) -> list[Finding]:
        """Return the findings of a rule, abstentions excluded."""
        return [finding for finding in self.findings if finding.rule == rule]

    @property
    def findings(self) -> list[Finding]:
        """All findings that are no abstentions."""
        return [f for f in self.summary.findings if f.severity != "info" or "missing" not in f.evidence]

    @property
    def says_uncertain(self) -> bool:
        """Whether the report says that its times are uncertain, because others kept the machine busy."""
        return bool(self.summary.conditions)

    # comparisons

    def add(self, subject: str, truth: str, reported: str, right: bool, error: str = "", soft: bool = False) -> Judge:
        """Add a comparison; a soft one that fails is uncertain where the report says so."""
        verdict: Verdict = "right" if right else "uncertain" if soft and self.says_uncertain else "wrong"
        self.checks.append(Check(subject, truth, reported, verdict, "" if right else error))
        return self

    def time(
        self,
        subject: str,
        truth_ns: float,
        reported_ns: float | None,
        relative: float = RELATIVE,
        absolute_ms: float = ABSOLUTE_MS,
    ) -> Judge:
        """Compare two times, in nanoseconds."""
        if reported_ns is None:
            return self.add(subject, f"{truth_ns / 1e6:.2f} ms", "absent", False, "absent")
        off = reported_ns - truth_ns
        right = abs(off) <= max(relative * truth_ns, absolute_ms * 1e6)
        error = f"{off / truth_ns:+.0%}" if truth_ns > ABSOLUTE_MS * 1e6 else f"{off / 1e6:+.2f} ms"
        return self.add(subject, f"{truth_ns / 1e6:.2f} ms", f"{reported_ns / 1e6:.2f} ms", right, error, soft=True)

    def steps(self, truth: int | None = None, within: int = 1) -> Judge:
        """Compare the number of steps that were found."""
        truth = len(CLOCK.steps) if truth is None else truth
        reported = self.summary.steps + self.summary.warmup_steps + self.summary.unsampled_steps
        reported += self.summary.skipped.get(OTHER_TARGETS, 0)  # found as well; they are in no row
        return self.add("steps", str(truth), str(reported), abs(truth - reported) <= within, f"{reported - truth:+d}")

    def recorded(self, share: float) -> Judge:
        """Require that at least a share of the steps after the warm-up is recorded."""
        truth = max(len(CLOCK.steps) - WARMUP, 1)
        right = self.summary.steps >= share * truth
        return self.add("recorded steps", f"at least {share * truth:.0f}", str(self.summary.steps), right, "too few")

    def step_time(self, relative: float = RELATIVE) -> Judge:
        """Compare the mean time of the recorded steps."""
        return self.time("step", fmean(s.step_ns for s in self.counted), self.summary.step_mean_ns, relative)

    def phases(self, *names: str, relative: float = RELATIVE) -> Judge:
        """Compare phases, per recorded step; ``other`` is the time in no phase."""
        for name in names:
            values = [s.other_ns if name == "other" else s.phases.get(name, 0) for s in self.counted]
            if not self.summary.steps:
                self.time(name, fmean(values), None)
                continue
            reported = self.summary.phases.get(Phase(name), 0) / self.summary.steps
            self.time(name, fmean(values), reported, relative, OTHER_MS if name == "other" else ABSOLUTE_MS)
        return self

    def row(self, pattern: str, phase: str, name: str | None = None, relative: float = RELATIVE) -> Judge:
        """Compare a row, found by a pattern, with the program's time of a name, per step."""
        truth = fmean(s.names.get((name or pattern, phase), 0) for s in self.counted)
        found = self.rows(pattern, phase)
        subject = f"{name or readable(pattern)} {phase}"
        if not found:
            return self.time(subject, truth, None)
        return self.time(subject, truth, sum(row.total_ns / max(row.steps, 1) for row in found), relative)

    def named(self, pattern: str, phase: str = "forward") -> Judge:
        """Require a row whose name matches a pattern."""
        found = self.rows(pattern, phase)
        shown = sorted({row.name for row in self.summary.rows if row.phase == phase})
        reported = found[0].name if found else f"only {', '.join(shown) or 'nothing'}"
        return self.add("named", readable(pattern), reported, bool(found), "not named")

    def hottest(self, pattern: str) -> Judge:
        """Require that the module with the longest self time over its phases is the one a pattern matches."""
        totals: dict[str, float] = {}
        for row in self.summary.rows:
            if row.phase in ("forward", "recompute", "backward") and row.fqn is not None:
                totals[row.name] = totals.get(row.name, 0.0) + row.self_ns / max(row.steps, 1)
        top = max(totals, key=lambda name: totals[name], default="nothing")
        right = re.fullmatch(pattern, top.replace("/", ".")) is not None
        return self.add("longest module", readable(pattern), top, right, "another")

    def run_time(self) -> Judge:
        """Compare the mean of all steps after the warm-up, recorded or not, also those after the last recorded one."""
        reported = self.summary.run_ns / self.summary.run_steps if self.summary.run_steps else None
        steps = [*self.trained, *CLOCK.steps[CLOCK.steps.index(self.trained[-1]) + 1 :]]
        return self.time("mean of all steps", fmean(step.step_ns for step in steps), reported)

    def excluded(self, relative: float = RELATIVE) -> Judge:
        """Compare all excluded time of the run; the absolute tolerance holds for each step that has some."""
        times = [step.phases[EXCLUDED] for step in CLOCK.steps if EXCLUDED in step.phases]
        reported = sum(one.total_ns for one in self.summary.stages)
        return self.time("excluded", sum(times), reported, relative, ABSOLUTE_MS * max(len(times), 1))

    def stage(self, name: str, calls: int, kind: str | None = None) -> Judge:
        """Compare the time of a stage and how often it came; ``kind`` is the report's name where it has another."""
        times = [step.names[name, "stage"] for step in CLOCK.steps if (name, "stage") in step.names]
        found = [one for one in self.summary.all_stages if one.kind == (kind or name)]
        total_ns = sum(one.total_ns for one in found) if found else None
        self.time(f"stage {name}", sum(times), total_ns, absolute_ms=ABSOLUTE_MS * calls)
        reported = sum(one.calls for one in found)
        return self.add(f"times of {name}", str(calls), str(reported), reported == calls, f"{reported - calls:+d}")

    def excludes_nothing(self) -> Judge:
        """Require that all time of the run belongs to its steps."""
        total_ns = sum(one.total_ns for one in self.summary.stages)
        return self.add("excluded", "0 ms", f"{total_ns / 1e6:.1f} ms", total_ns == 0, "not training")

    def throughput(self, units: float | Sequence[float] | None, may_be_absent: bool = False) -> Judge:
        """Compare the throughput with units per step over the mean step; None requires that it is absent.

        The report's figure is that of all steps from the end of its warm-up to the last recorded one; ``units`` may be
        a sequence with those of each step.
        """
        reported = self.summary.throughput
        if units is None:
            text = "absent" if reported is None else f"{reported:.1f}/s"
            return self.add("throughput", "absent", text, reported is None, "invented")
        if isinstance(units, Sequence):
            units = fmean(units[CLOCK.steps.index(step)] for step in self.trained)
        truth = units * 1e9 / fmean(step.step_ns for step in self.trained)
        if reported is None:
            text = f"{truth:.1f}/s or absent" if may_be_absent else f"{truth:.1f}/s"
            return self.add("throughput", text, "absent", may_be_absent, "absent")
        off = reported / truth - 1
        error = f"{off:+.1%}" if abs(off) < 1 else f"x {1 + off:.1f}"
        return self.add("throughput", f"{truth:.1f}/s", f"{reported:.1f}/s", abs(off) <= RATE, error, soft=True)

    def finds(self, rule: str, *words: str) -> Judge:
        """Require a finding of a rule whose sentences have all the words."""
        found = self.found(rule)
        text = " ".join(f"{f.name or ''} {f.why} {f.next}" for f in found)
        missing = [word for word in words if re.search(word, text) is None]
        shown = f"{rule}: {text[:120]}" if found else f"only {self._rules()}"
        truth = ", ".join((rule, *map(readable, words)))
        return self.add("finding", truth, shown, bool(found) and not missing, "not found", soft=self.abstains(rule))

    def names(self, truth: str, pattern: str, *rules: str) -> Judge:
        """Require a finding with these words, of whichever rule; ``rules`` are those that may have abstained."""
        text = " ".join(f"{f.rule} {f.name or ''} {f.why} {f.next}" for f in self.findings)
        soft = any(map(self.abstains, rules))
        shown = text[:120] or "no finding"
        return self.add("named", truth, shown, re.search(pattern, text) is not None, "not named", soft=soft)

    def abstains(self, rule: str) -> bool:
        """Whether a rule says that it cannot tell: others keep the machine busy, or the steps differ too much."""
        of = [str(f.evidence.get("missing", "")) for f in self.summary.findings if f.rule == rule]
        return any(missing == QUIET or missing.startswith("inconclusive") for missing in of)

    def verdict(self, rules: str | tuple[str, ...], *words: str, also: tuple[str, ...] = ()) -> Judge:
        """Require that the verdict is of one of the rules and has all the words, and that no other rule accuses.

        ``also`` has rules that are true of the program as well, after the verdict. Nothing found on a machine that
        the report calls busy is uncertain; a wrong accusation is wrong on any machine.
        """
        rules = (rules,) if isinstance(rules, str) else rules
        accusing = [f for f in self.findings if f.rule not in _NO_ACCUSATION]
        others = [f.rule for f in accusing if f.rule not in (*rules, *also)]
        truth = ", ".join((" or ".join(rules), *map(readable, words)))
        if others or not accusing:
            shown = "; ".join(f"{f.rule}: {f.why}" for f in accusing) or "nothing"
            return self.add("verdict", truth, shown[:200], False, "wrong cause" if others else "missed", not others)
        first = accusing[0]
        text = f"{first.name or ''} {first.why} {first.next}"
        right = first.rule in rules and all(re.search(word, text) for word in words)
        return self.add("verdict", truth, f"{first.rule}: {text}"[:200], right, "another place")

    def silent(self, *rules: str) -> Judge:
        """Require that none of the rules has a finding; without rules, that there is no finding of the program.

        The findings about the machine and about autoprof itself accuse no program.
        """
        accused = [f for f in self.findings if f.rule in rules or (not rules and f.rule not in _NO_ACCUSATION)]
        shown = "; ".join(f"{f.rule}: {f.why}" for f in accused) or "none"
        return self.add("findings", f"no {', '.join(rules)}" if rules else "none", shown[:200], not accused, "accused")

    def _rules(self) -> str:
        return ", ".join(f.rule for f in self.findings) or "nothing"

    def says(self, truth: str, pattern: str, *rules: str) -> Judge:
        """Require a sentence in the report, as printed or in ``summary.txt``, of rules that may have abstained.

        Line breaks are spaces.
        """
        soft = any(map(self.abstains, rules))
        found = re.search(rf".{{0,40}}({pattern}).{{0,40}}", self.all_text, re.IGNORECASE)
        return self.add("says", truth, f"… {found[0]} …" if found else "nothing", found is not None, "not said", soft)

    def is_true(self, subject: str, right: bool, reported: object = "", truth: str = "yes") -> Judge:
        """Add a comparison that the program has made."""
        return self.add(subject, truth, str(reported) or ("yes" if right else "no"), right, "no")

    def closes(self) -> Judge:
        """Require that the phases add up to the steps, and children never exceed their parent."""
        total = sum(self.summary.phases.values())
        self.add(
            "phases add up", str(self.summary.total_step_ns), str(total), total == self.summary.total_step_ns, "no"
        )
        worst = [row for row in self.summary.rows if not 0 <= row.self_ns <= row.total_ns]
        names = ", ".join(row.name for row in worst) or "none"
        return self.add("children above their parent", "none", names, not worst, "above")


def _middle(frame: StepFrame) -> int:
    """Return the middle of a recorded step: it lies in the same step of the program, whichever marks end the two."""
    return frame.start_unix_ns + frame.duration_ns // 2


def readable(pattern: str) -> str:
    """Return a regular expression without its optional parts and its backslashes."""
    return re.sub(r"\(\.\*\\\.\)\?|\(\\\.[^()]*\)\?|^\.\*|\\b", "", pattern).replace(r"\d+", "N").replace("\\", "")


_NO_ACCUSATION: Final = frozenset({"overhead"})
