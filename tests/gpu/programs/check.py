"""Compare what autoprof recorded with what the programs know.

    python check.py FOLDER [NAME ...]

FOLDER is that of run_all.py. A line a claim: OK, WRONG, ODD (a claim that the documentation does not make plainly),
SKIP (cannot be judged here), with the program, the claim, what was expected and what was found.
"""

import contextlib
import io
import json
import os
import statistics
import sys
import traceback
from pathlib import Path

from loops import kit

LOOPS = Path(__file__).with_name("loops.py")
REL, ABS_MS = 0.05, 0.3


def plain(value):
    return str(getattr(value, "value", value))


class Program:
    def __init__(self, name, folder):
        self.name, self.folder = name, Path(folder) / name
        self.expected = kit.PROGRAMS[name].expected
        self.lines = []
        self.status = self._json("status.json") or {}
        self.truth = self._json("profiled.json")
        self.dry = bool(self.truth) and self.truth["device"] == "cpu"
        self.causes, self.explain, self.summary, self.run = [], None, None, None

    def _json(self, file):
        try:
            return json.loads((self.folder / file).read_text())
        except (OSError, ValueError):
            return None

    def say(self, ok, claim, expected, found, soft=False):
        word = ok if isinstance(ok, str) else "OK" if ok else "ODD" if soft else "WRONG"
        self.lines.append((word, self.name, claim, str(expected), str(found)))

    def near(self, claim, expected_ms, found_ms, tolerance_ms=None, soft=False, rel=REL):
        if found_ms is None:
            self.say(False, claim, f"{expected_ms:.2f} ms", "nothing", soft)
            return
        bound = max(rel * expected_ms, ABS_MS if tolerance_ms is None else tolerance_ms)
        if self.dry:
            bound = max(0.6 * expected_ms, 6.0)  # a dry run proves the programs and the checker, not the times
        good = abs(found_ms - expected_ms) <= bound
        self.say(good, claim, f"{expected_ms:.2f} ms +-{bound:.2f}", f"{found_ms:.2f} ms", soft)

    # ---- the whole

    def check(self):
        for way, state in self.status.items():
            self.say(state == 0, f"the program ends well ({way})", 0, state)
        written = self.folder / "profiled.err"
        errors = written.read_text(errors="replace").splitlines() if written.exists() else []
        complaints = ("autoprof run:", "Traceback", "Exception ignored")
        usual = "autoprof run: recording the training of"
        bad = [line for line in errors if line.startswith(complaints) and not line.startswith(usual)]
        self.say(not bad, "no complaint on the standard error", "none", bad[:2] or "none")
        if self.truth is None:
            self.say(False, "the program's own truth", "a file", "none")
            return
        self._bits()
        self._counts()
        folders = sorted(path.parent for path in self.folder.glob("runs/*/run.json"))
        self.say(len(folders) == 1, "one run is recorded", 1, len(folders))
        if not folders:
            return
        self._read(folders[-1])
        if self.summary is None:
            self.say(False, "the run has a summary", "yes", "no")
            return
        self._general()
        for claim in self.expected.get("claims", []):
            if claim.get("gpu") and self.dry:
                self.say("SKIP", self._words(claim), "-", "needs a GPU")
                continue
            try:
                getattr(self, "_c_" + claim["kind"])(claim)
            except Exception as error:
                self.say(False, self._words(claim), "-", f"{type(error).__name__}: {error}")

    @staticmethod
    def _words(claim):
        return " ".join(str(value) for key, value in claim.items() if key not in ("gpu", "soft", "tolerance_ms"))

    def _read(self, folder):
        import autoprof
        from autoprof.frontends.cli import main

        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(["explain", str(folder), "--json"])
            text = out.buffer.getvalue().decode()
            (self.folder / "explain.json").write_text(text)
            self.explain = json.loads(text)
            size = len(text.encode())
            good = code == 0 and size <= 4000 and self.explain["schema"] == "autoprof.explain/1"
            self.say(good, "explain --json: at most 4,000 bytes", "0, <= 4000", f"{code}, {size}")
            self.causes = self.explain["causes"]
        except Exception as error:
            said = err.buffer.getvalue().decode()[-200:]
            self.say(False, "explain --json", "JSON", f"{type(error).__name__}: {error} {said}")
        self.run = autoprof.read_run(folder)
        self.summary = self.run.summary

    def _bits(self):
        count = self.expected.get("bare", 0)
        if not count:
            return
        bare = [self._json(f"bare{i + 1}.json") for i in range(count)]
        if any(one is None for one in bare):
            self.say("SKIP", "bits equal to bare", "-", "no bare run")
            return
        for key in ("checksum", "losses", "random_state"):
            values = {one.get(key) for one in bare}
            if values == {None}:
                continue
            if len(values) > 1:
                self.say("SKIP", f"bits equal to bare: {key}", "-", "two bare runs differ already")
            else:
                found = self.truth.get(key)
                self.say(values == {found}, f"bits equal to bare: {key}", values.pop(), found)
        key = "wall_ms_per_step"
        self.say("INFO", key, f"bare {[one.get(key) for one in bare]}", self.truth.get(key))

    def _counts(self):
        for kind, key in (("spans", "counts"), ("host_spans", "host_counts")):
            for name, count in self.expected.get(key, {}).items():
                found = self.truth[kind].get(name, {}).get("n")
                self.say(found == count, f"the program's own code {name!r} ran", count, found)

    def _general(self):
        s = self.summary
        steps, soft = self.expected["steps"], self.expected.get("steps_soft", False)
        allowed = steps if isinstance(steps, list) else [steps]
        self.say(s.all_steps in allowed, "steps", steps, s.all_steps, soft)
        if not self.dry:
            self.say(plain(s.clock) == "device", "clock", "device", plain(s.clock), soft)
        if "step" in self.truth:
            p50, rel = self.truth["step"]["p50"], self.expected.get("step_tolerance", REL)
            self.near("length of a step (median)", p50, s.step_p50_ns / 1e6, soft=soft, rel=rel)
            self.near("mean of all steps", self.truth["wall_ms_per_step"], s.run_mean_ns / 1e6, soft=soft, rel=0.2)
        if self.explain:
            same = self.explain.get("steps") == s.steps
            self.say(same, "explain and summary agree on the recorded steps", s.steps, self.explain.get("steps"))
        self.say(not s.dropped, "nothing dropped", "{}", dict(s.dropped))
        total = sum(s.phases.values())
        self.say(total == s.total_step_ns, "the phases add up to all steps (ns)", s.total_step_ns, total)
        frames = worst = over = negative = 0
        for frame in self.run.frames:
            frames += 1
            phases = frame.phase_ns()
            worst = max(worst, abs(sum(phases.values()) - frame.step_ns))
            negative = min(negative, min(phases.values(), default=0))
            spans, lengths = list(frame.spans), list(frame.total_ns)
            inside = {}
            for span, length in zip(spans, lengths, strict=False):
                if span.parent is not None and span.parent >= 0 and spans[span.parent].lane == span.lane:
                    inside[span.parent] = inside.get(span.parent, 0) + length
            for parent, total in inside.items():
                over = max(over, int(total - lengths[parent]))
        self.say(frames > 0, "records of steps", "> 0", frames)
        self.say(worst == 0, "in each step the phases add up (ns off)", 0, worst)
        self.say(negative >= 0, "in each step no phase is negative (ns)", 0, negative)
        self.say(over <= 0, "in each step children <= parent (ns over)", 0, over)
        self.say("INFO", "overhead by its own clock; skipped", "-", f"{s.overhead:.2%} {dict(s.skipped)}")
        causes = "; ".join(f"{c['rule']}@{c['place'].get('name') or c['place'].get('line')}" for c in self.causes)
        self.say("INFO", "causes", "-", causes or (self.explain and self.explain.get("state")))
        if s.notes:
            self.say("INFO", "notes", "-", " | ".join(s.notes)[:600])

    # ---- kinds of claims

    def _expected_ms(self, claim):
        value = claim["is"]
        if isinstance(value, str):
            group = "host_spans" if claim.get("host") else "spans"
            value = self.truth[group][value]["p50"]
        return value * claim.get("times", 1)

    def _row(self, claim):
        name = claim["module"].replace(".", "/")
        rows = [row for row in self.summary.rows if plain(row.phase) == claim["phase"]]
        exact = [row for row in rows if row.name == name or row.fqn == claim["module"]]
        if exact:
            return max(exact, key=lambda row: row.total_ns)
        below = [row for row in rows if row.name.startswith(name + "/")]
        return max(below, key=lambda row: row.total_ns) if below else None

    def _c_row(self, claim):
        row, expected = self._row(claim), self._expected_ms(claim)
        found = None
        if row is not None:
            found = (row.self_ns / max(row.steps, 1) if claim.get("own_part") else row.p50_ns) / 1e6
        words = f"{claim['phase']} of {claim['module']}"
        if row is None and expected == 0.0:
            self.say(True, words, "0.00 ms", "no row")
            return
        self.near(words, expected, found, claim.get("tolerance_ms"), claim.get("soft", False))

    def _phase_ms(self, phase):
        """The median of the phase over the recorded steps."""
        frames = [frame.phase_ns() for frame in self.run.frames if not frame.warmup]
        values = [{plain(key): ns for key, ns in phases.items()}.get(phase, 0) / 1e6 for phases in frames]
        return statistics.median_high(values) if values else None

    def _c_phase(self, claim):
        words, found = f"phase {claim['phase']}", self._phase_ms(claim["phase"])
        self.near(words, self._expected_ms(claim), found, claim.get("tolerance_ms"), claim.get("soft", False))

    def _one_value(self, claim):
        """Judge a claim about one value: what it is, or its limits."""
        kind = claim["kind"]
        row = self._row(claim) if "module" in claim else None
        if kind in ("truth", "truth_between"):
            words, found = f"the program's {claim['key']}", self.truth.get(claim["key"])
        elif kind == "micro_steps":
            words, found = "micro-steps", self.summary.micro_steps
        elif kind == "phase_between":
            words, found = f"phase {claim['phase']} (ms)", self._phase_ms(claim["phase"])
        elif kind == "calls":
            words, found = f"calls of {claim['module']} a step", row and row.steps and row.calls / row.steps
        elif kind == "lane":
            words, found = f"lane of {claim['module']} is the step's", row and row.lane == 0
        else:
            words, found = f"the device waited for the host in {claim['module']}", row and row.host_bound
        expected = claim.get("is", claim.get("main"))
        if "low" in claim:
            high = claim.get("high", float("inf"))
            expected, good = f"{claim['low']}..{high}", found is not None and claim["low"] <= found <= high
        else:
            good = found == expected
        self.say(good, words, expected, found, claim.get("soft", False))

    _c_truth = _c_truth_between = _c_micro_steps = _c_phase_between = _c_calls = _c_lane = _c_host_bound = _one_value

    def _found_rules(self):
        rules = [cause["rule"] for cause in self.causes]
        rules += [f.rule for f in self.summary.findings if plain(f.severity) != "info"]
        return list(dict.fromkeys(rules))

    def _abstained(self, rule):
        for finding in self.summary.findings:
            if finding.rule == rule and plain(finding.severity) == "info":
                return f" ({rule} abstains: {finding.why[:90]})"
        return ""

    def _rules(self, claim):
        """Judge a claim about the rules: the first, one or one of several that is found, or one that is not."""
        kind, rules, found = claim["kind"], claim.get("rules") or [claim["rule"]], self._found_rules()
        if kind == "top":
            good = found[:1] == rules
        elif kind == "not_found":
            good = rules[0] not in found
        else:
            good = any(rule in found for rule in rules)
            if good and claim.get("module"):
                good = any(self._names(cause, claim["module"]) for cause in self.causes if cause["rule"] in rules)
        words = {"top": "the verdict", "not_found": "not found"}.get(kind, "found")
        said = (", ".join(found) or "nothing") + ("" if kind == "not_found" else "".join(map(self._abstained, rules)))
        self.say(good, words, " or ".join(rules), said, claim.get("soft", False))

    _c_top = _c_found = _c_found_any = _c_not_found = _rules

    @staticmethod
    def _names(cause, module):
        place = cause["place"]
        return (
            (place.get("module") or "").split(".")[-1] == module
            or (place.get("name") or "").split("/")[-1] == module
            or module in cause["cause"].replace(".", " ").replace("/", " ").split()
        )

    def _c_names(self, claim):
        causes = [cause["rule"] for cause in self.causes if self._names(cause, claim["module"])]
        found = causes or [c["cause"][:70] for c in self.causes]
        self.say(bool(causes), f"a cause names {claim['module']}", "one", found, claim.get("soft", False))

    def _c_line(self, claim):
        source = LOOPS.read_text().splitlines()
        line = next(i + 1 for i, text in enumerate(source) if text.endswith("# " + claim["mark"]))
        wanted, found, good = f"{LOOPS.name}:{line}", [], False
        for cause in self.causes:
            if claim["rule"] in (None, cause["rule"]):
                place = cause["place"]
                at = f"{os.path.basename(place.get('file') or '')}:{place.get('line')}"
                found.append(f"{cause['rule']} {at}")
                good = good or at == wanted or f"{wanted} " in cause["cause"] + " "
        words = f"the line of {claim['rule'] or 'a cause'}"
        self.say(good, words, wanted, found or "no such cause", claim.get("soft", False))

    def _whole(self):
        return next((row for row in self.summary.memory_table if row.name is None), None)

    def _memory(self, words, expected, found):
        """Judge bytes, to one per cent."""
        good = found is not None and abs(found - expected) <= 0.01 * expected
        mib = "nothing" if found is None else f"{found / 2**20:.1f} MiB"
        self.say(good, words, f"{expected / 2**20:.1f} MiB", mib)

    def _c_peak(self, claim):
        row = self._whole()
        self._memory("peak memory (memory)", self.truth["peak_bytes"], self.summary.memory.get("peak_bytes"))
        self._memory("peak memory (table)", self.truth["peak_bytes"], row and row.peak_bytes)

    def _c_activations(self, claim):
        row, t = self._whole(), self.truth
        expected = t["peak_bytes"] - 2 * t["parameter_bytes"] - t["state_bytes"]
        self._memory("activations and the rest of the peak", expected, row and row.activation_bytes)

    def _c_memory_part(self, claim):
        row = self._whole()
        self._memory(claim["part"], self.truth[claim["key"]], row and getattr(row, claim["part"]))

    def _c_excluded(self, claim):
        figures = self.truth["host_spans"][claim["is"]]
        found = [one for one in self.summary.stages if one.name == claim["name"]]
        calls, words = sum(one.calls for one in found), f"excluded {claim['name']}"
        every = [(one.name, one.calls) for one in self.summary.stages]
        self.say(calls == figures["n"], f"{words}: times", figures["n"], f"{calls} {every}")
        each_ms = sum(one.total_ns for one in found) / calls / 1e6 if calls else None
        self.near(f"{words}: each", figures["mean"], each_ms)


def check(folder, names=None):
    """Check all programs of a folder; return the lines."""
    names = names or sorted(path.name for path in Path(folder).iterdir() if path.name in kit.PROGRAMS)
    lines = []
    for name in names:
        program = Program(name, folder)
        try:
            program.check()
        except Exception:
            said = traceback.format_exc(limit=-2).replace("\n", " | ")
            program.say(False, "the checker", "no failure", said)
        lines += program.lines
    return lines


def page(lines):
    """The lines as a page of markdown."""
    counts = {word: sum(line[0] == word for line in lines) for word in ("OK", "WRONG", "ODD")}
    text = [
        "# Are the claims of reports right on a GPU?",
        "",
        f"**Result**: {counts['OK']} of {sum(counts.values())} claims right, {counts['WRONG']} wrong, "
        f"{counts['ODD']} made by no page",
        "",
        "Training loops that know nothing of autoprof: sleeping kernels in every phase and on a side stream, slow",
        "loaders, AMP, a GAN, compiled models, CUDA graphs, failed allocations.",
        "",
        "| program | claim | expected | found | verdict |",
        "|---|---|---|---|---|",
    ]
    for word, name, claim, expected, found in lines:
        cells = (str(one).replace("|", "&#124;") for one in (name, claim, expected, found, word))
        text.append(f"| {' | '.join(cells)} |")
    return "\n".join(text) + "\n"


def table(lines):
    """The lines as text: the wrong ones again at the end."""
    out = []
    for word, name, claim, expected, found in lines:
        out.append(f"{word:5} {name:24} {claim:52} expected {expected:28} found {found}")
    counts = {word: sum(1 for line in lines if line[0] == word) for word in ("OK", "WRONG", "ODD", "SKIP")}
    wrong = [text for text, line in zip(out, lines, strict=True) if line[0] in ("WRONG", "ODD")]
    counted = " ".join(f"{word} {count}" for word, count in counts.items())
    return "\n".join([*out, "", "NOT OK:", *wrong, "", counted])


if __name__ == "__main__":
    result = check(sys.argv[1], sys.argv[2:] or None)
    print(table(result))
    sys.exit(any(line[0] == "WRONG" for line in result))
