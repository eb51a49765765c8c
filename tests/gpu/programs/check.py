"""Compare what autoprof recorded with what the programs know.

    python check.py FOLDER [NAME ...]

FOLDER is that of run_all.py. A line a claim: OK, WRONG, ODD (a claim that the documentation does not make plainly),
SKIP (cannot be judged here), with the program, the claim, what was expected and what was found.
"""

import ast
import contextlib
import io
import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REL, ABS_MS = 0.05, 0.3


def expectation(name):
    """EXPECTED of a program, read without running it."""
    for node in ast.parse((HERE / f"{name}.py").read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "EXPECTED":
            return ast.literal_eval(node.value)
    return {}


def plain(value):
    return str(getattr(value, "value", value))


class Program:
    def __init__(self, name, folder):
        self.name, self.folder = name, Path(folder) / name
        self.expected = expectation(name)
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

    def near(self, claim, expected_ms, found_ms, tolerance_ms=None, soft=False, rel=None):
        if found_ms is None:
            self.say(False, claim, f"{expected_ms:.2f} ms", "nothing", soft)
            return
        rel = REL if rel is None else rel
        bound = max(rel * expected_ms, ABS_MS if tolerance_ms is None else tolerance_ms)
        if self.dry:
            bound = max(0.6 * expected_ms, 6.0)  # a dry run proves the programs and the checker, not the times
        self.say(
            abs(found_ms - expected_ms) <= bound,
            claim,
            f"{expected_ms:.2f} ms +-{bound:.2f}",
            f"{found_ms:.2f} ms",
            soft,
        )

    # ---- the whole

    def check(self):
        for way, state in self.status.items():
            self.say(state == 0, f"the program ends well ({way})", 0, state)
        errors = ""
        with contextlib.suppress(OSError):
            errors = (self.folder / "profiled.err").read_text(errors="replace")
        bad = [
            line for line in errors.splitlines() if line.startswith(("autoprof run:", "Traceback", "Exception ignored"))
        ]
        bad = [line for line in bad if not line.startswith("autoprof run: recording the training of")]
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
        from autoprof.cli import main

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
            self.say(
                False,
                "explain --json",
                "JSON",
                f"{type(error).__name__}: {error} {err.buffer.getvalue().decode()[-200:]}",
            )
        try:
            self.run = autoprof.read_run(folder)
            self.summary = self.run.summary
        except Exception as error:
            self.say(False, "read_run", "a run", f"{type(error).__name__}: {error}")

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
                self.say(
                    values == {self.truth.get(key)}, f"bits equal to bare: {key}", values.pop(), self.truth.get(key)
                )
        for key in ("wall_ms_per_step",):
            self.say("INFO", key, f"bare {[one.get(key) for one in bare]}", self.truth.get(key))

    def _counts(self):
        for kind, key in (("spans", "counts"), ("host_spans", "host_counts")):
            for name, count in self.expected.get(key, {}).items():
                found = self.truth[kind].get(name, {}).get("n")
                self.say(found == count, f"the program's own code {name!r} ran", count, found)

    def _general(self):
        s = self.summary
        steps = self.expected["steps"]
        allowed = steps if isinstance(steps, list) else [steps]
        self.say(s.all_steps in allowed, "steps", steps, s.all_steps, self.expected.get("steps_soft", False))
        if not self.dry:
            self.say(
                plain(s.clock) == "device", "clock", "device", plain(s.clock), self.expected.get("steps_soft", False)
            )
        if "step" in self.truth:
            self.near(
                "length of a step (median)",
                self.truth["step"]["p50"],
                s.step_p50_ns / 1e6,
                soft=self.expected.get("steps_soft", False),
                rel=self.expected.get("step_tolerance"),
            )
        if self.explain:
            same = self.explain.get("steps") == s.steps
            self.say(same, "explain and summary agree on the recorded steps", s.steps, self.explain.get("steps"))
        self.say(not s.dropped, "nothing dropped", "{}", dict(s.dropped))
        self.say(
            sum(s.phases.values()) == s.total_step_ns,
            "the phases add up to all steps (ns)",
            s.total_step_ns,
            sum(s.phases.values()),
        )
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
        self.say(
            "INFO",
            "causes",
            "-",
            "; ".join(f"{c['rule']}@{c['place'].get('name') or c['place'].get('line')}" for c in self.causes)
            or (self.explain and self.explain.get("state")),
        )
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
        values = []
        frames = [frame for frame in self.run.frames if not frame.warmup]
        values += [{plain(key): ns for key, ns in frame.phase_ns().items()}.get(phase, 0) / 1e6 for frame in frames]
        values.sort()
        return values[len(values) // 2] if values else None

    def _c_phase(self, claim):
        self.near(
            f"phase {claim['phase']}",
            self._expected_ms(claim),
            self._phase_ms(claim["phase"]),
            claim.get("tolerance_ms"),
            claim.get("soft", False),
        )

    def _c_phase_between(self, claim):
        found = self._phase_ms(claim["phase"])
        self.say(
            found is not None and claim["low"] <= found <= claim["high"],
            f"phase {claim['phase']}",
            f"{claim['low']}..{claim['high']} ms",
            "nothing" if found is None else f"{found:.2f} ms",
        )

    def _found_rules(self):
        rules = [cause["rule"] for cause in self.causes]
        rules += [f.rule for f in self.summary.findings if plain(f.severity) != "info"]
        return list(dict.fromkeys(rules))

    def _abstained(self, rule):
        for finding in self.summary.findings:
            if finding.rule == rule and plain(finding.severity) == "info":
                return f" ({rule} abstains: {finding.why[:90]})"
        return ""

    def _c_top(self, claim):
        rules = self._found_rules()
        self.say(
            bool(rules) and rules[0] == claim["rule"],
            "the verdict",
            claim["rule"],
            (", ".join(rules) or "nothing") + self._abstained(claim["rule"]),
            claim.get("soft", False),
        )

    def _c_found(self, claim):
        rules = self._found_rules()
        good = claim["rule"] in rules
        if good and claim.get("module"):
            good = any(self._names(cause, claim["module"]) for cause in self.causes if cause["rule"] == claim["rule"])
        self.say(
            good,
            "found",
            f"{claim['rule']} {claim.get('module', '')}",
            (", ".join(rules) or "nothing") + self._abstained(claim["rule"]),
            claim.get("soft", False),
        )

    def _c_found_any(self, claim):
        rules = self._found_rules()
        self.say(
            any(rule in rules for rule in claim["rules"]),
            "found one of",
            claim["rules"],
            rules or "nothing",
            claim.get("soft", False),
        )

    def _c_not_found(self, claim):
        rules = self._found_rules()
        self.say(
            claim["rule"] not in rules, "not found", f"no {claim['rule']}", rules or "nothing", claim.get("soft", False)
        )

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
        self.say(
            bool(causes),
            f"a cause names {claim['module']}",
            "one",
            causes or [c["cause"][:70] for c in self.causes],
            claim.get("soft", False),
        )

    def _c_line(self, claim):
        source = (HERE / f"{self.name}.py").read_text().splitlines()
        line = next(i + 1 for i, text in enumerate(source) if text.endswith("# " + claim["mark"]))
        found = []
        good = False
        for cause in self.causes:
            if claim["rule"] in (None, cause["rule"]):
                place = cause["place"]
                found.append(
                    f"{cause['rule']} {place.get('file') and os.path.basename(place['file'])}:{place.get('line')}"
                )
                good = good or (place.get("line") == line and (place.get("file") or "").endswith(f"{self.name}.py"))
                good = good or f"{self.name}.py:{line} " in cause["cause"] + " "
        self.say(
            good,
            f"the line of {claim['rule'] or 'a cause'}",
            f"{self.name}.py:{line}",
            found or "no such cause",
            claim.get("soft", False),
        )

    def _c_micro_steps(self, claim):
        self.say(
            self.summary.micro_steps == claim["is"],
            "micro-steps",
            claim["is"],
            self.summary.micro_steps,
            claim.get("soft", False),
        )

    def _c_calls(self, claim):
        row = self._row(claim)
        found = None if row is None or not row.steps else row.calls / row.steps
        self.say(
            found == claim["is"], f"calls of {claim['module']} a step", claim["is"], found, claim.get("soft", False)
        )

    def _c_lane(self, claim):
        row = self._row(claim)
        good = row is not None and (row.lane == 0) == claim["main"]
        self.say(
            good, f"lane of {claim['module']}", "0" if claim["main"] else "not 0", "no row" if row is None else row.lane
        )

    def _c_host_bound(self, claim):
        row = self._row(claim)
        found = None if row is None else row.host_bound
        self.say(
            found is not None and found >= claim["low"],
            f"the device waited for the host in {claim['module']}",
            f">= {claim['low']}",
            found,
        )

    def _c_truth(self, claim):
        self.say(
            self.truth.get(claim["key"]) == claim["is"],
            f"the program's {claim['key']}",
            claim["is"],
            self.truth.get(claim["key"]),
        )

    def _c_truth_between(self, claim):
        found = self.truth.get(claim["key"])
        self.say(
            claim["low"] <= found <= claim["high"],
            f"the program's {claim['key']}",
            f"{claim['low']}..{claim['high']}",
            found,
        )

    def _whole(self):
        return next((row for row in self.summary.memory_table if row.name is None), None)

    def _c_peak(self, claim):
        expected = self.truth["peak_bytes"]
        row = self._whole()
        found = {"memory": self.summary.memory.get("peak_bytes"), "table": None if row is None else row.peak_bytes}
        for where, value in found.items():
            self.say(
                value is not None and abs(value - expected) <= 0.01 * expected,
                f"peak memory ({where})",
                f"{expected / 2**20:.1f} MiB",
                "nothing" if value is None else f"{value / 2**20:.1f} MiB",
            )

    def _c_activations(self, claim):
        row = self._whole()
        t = self.truth
        expected = t["peak_bytes"] - 2 * t["parameter_bytes"] - t["state_bytes"]
        found = None if row is None else row.activation_bytes
        self.say(
            found is not None and abs(found - expected) <= 0.01 * expected,
            "activations and the rest of the peak",
            f"{expected / 2**20:.1f} MiB",
            "nothing" if found is None else f"{found / 2**20:.1f} MiB",
        )

    def _c_memory_part(self, claim):
        row, expected = self._whole(), self.truth[claim["key"]]
        found = None if row is None else getattr(row, claim["part"])
        self.say(found is not None and abs(found - expected) <= 0.01 * expected, claim["part"], expected, found)

    def _c_excluded(self, claim):
        figures = self.truth["host_spans"][claim["is"]]
        found = [one for one in self.summary.excluded if one.name == claim["name"]]
        calls = sum(one.calls for one in found)
        self.say(
            calls == figures["n"],
            f"excluded {claim['name']}: times",
            figures["n"],
            f"{calls} {[(one.name, one.calls) for one in self.summary.excluded]}",
        )
        self.near(
            f"excluded {claim['name']}: each",
            figures["mean"],
            sum(o.total_ns for o in found) / calls / 1e6 if calls else None,
        )


def check(folder, names=None):
    """Check all programs of a folder; return the lines."""
    names = names or sorted(path.name for path in Path(folder).iterdir() if (HERE / f"{path.name}.py").exists())
    lines = []
    for name in names:
        program = Program(name, folder)
        try:
            program.check()
        except Exception as error:
            import traceback

            program.say(
                False, "the checker", "no failure", traceback.format_exc(limit=-2).replace("\n", " | ") + repr(error)
            )
        lines += program.lines
    return lines


def table(lines):
    """The lines as text: the wrong ones again at the end."""
    out = []
    for word, name, claim, expected, found in lines:
        out.append(f"{word:5} {name:24} {claim:52} expected {expected:28} found {found}")
    counts = {word: sum(1 for line in lines if line[0] == word) for word in ("OK", "WRONG", "ODD", "SKIP")}
    out.append("")
    out.append("NOT OK:")
    out += [text for text, line in zip(out, lines, strict=False) if line[0] in ("WRONG", "ODD")]
    out.append("")
    out.append(" ".join(f"{word} {count}" for word, count in counts.items()))
    return "\n".join(out)


if __name__ == "__main__":
    result = check(sys.argv[1], sys.argv[2:] or None)
    print(table(result))
    sys.exit(any(line[0] == "WRONG" for line in result))
