"""The report itself: its length, its last line, short runs, and what happens after the end."""

import re
import subprocess
import sys
import warnings
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import nn

import autoprof

from ..clock import CLOCK
from ..judge import PRINTED, WARMUP, Judge
from ..parts import Block, Chain, Sleep, batches, clocked_steps, instrumented, train, train_step
from ..registry import program


def large() -> Chain:
    """Return a model with many names."""
    return Chain(*(nn.Sequential(Block((0.3, 0.3), (0.2, 0.2)), nn.Linear(16, 16), nn.ReLU()) for _ in range(6)))


def end(model: Any, steps: int) -> tuple[Judge, list[str]]:
    """Train, close, and return the lines of the report, with the empty one before it."""
    session, optimizer = instrumented(model)
    train(model, optimizer, steps)
    sys.stdout.flush()
    before = len(Path(PRINTED).read_text(encoding="utf-8")) if Path(PRINTED).exists() else 0
    sys.stdout.flush()
    judge = Judge(session)
    text = judge.printed[before:].rstrip("\n")
    return judge, text[
        max(text.find("\n\u2500"), 0) :
    ].splitlines()  # a last line of progress may come before the report


@program("report", "a large model: 40 lines of 80 columns, the verdict above the phases, the folder in the last line")
def report_of_a_large_model() -> Judge:
    judge, lines = end(large(), 100)
    judge.steps().recorded(0.5).is_true("lines", 0 < len(lines) <= 40, len(lines), "1 to 40")
    widest = max((len(line) for line in lines[:-1]), default=0)
    judge.is_true("columns", widest <= 80, widest, "at most 80")
    text = "\n".join(lines).lower()
    card, phases = text.find("verdict"), text.find("phase ")
    judge.is_true("verdict above phases", 0 <= card < phases, f"verdict at {card}, phases at {phases}")
    last, folder = lines[-1] if lines else "nothing", judge.folder
    return judge.is_true("last line", folder is not None and folder.name in last, last, "the folder")


@program("report", "the run's folder has the figures of session.summary() and the full report; show opens it")
def folder_of_a_run() -> Judge:
    judge, lines = end(large(), 60)
    saved = autoprof.read_run(judge.folder).summary if judge.folder else None
    both = [(one.steps, one.phases, one.rows) for one in (saved, judge.summary) if one is not None]
    judge.is_true("the same figures", len(both) == 2 and both[0] == both[1])
    full = (judge.folder / "summary.txt").read_text(encoding="utf-8").splitlines() if judge.folder else []
    judge.is_true("lines in summary.txt", len(full) > len(lines), f"{len(full)}, printed {len(lines)}", "more")
    shown = subprocess.run([sys.executable, "-m", "autoprof", "show"], capture_output=True, text=True, check=False)
    judge.is_true("autoprof show", shown.returncode == 0 and "step" in shown.stdout, shown.stderr[:80] or "shown")
    text = judge.summary._repr_html_()
    return judge.is_true("in a notebook", "<" in text and "step" in text, text[:60] or "absent", "HTML")


@program("report", "step() after close() warns once and raises nothing")
def step_after_close() -> Judge:
    model = Chain(Sleep(1, 1))
    session, optimizer = instrumented(model)
    CLOCK.start()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for number, batch in enumerate(batches(20)):
            train_step(model, optimizer, batch)
            CLOCK.step()
            if number == 10:
                session.close()
            session.step()
    sys.stderr.flush()
    judge = Judge(session)
    said = sum("clos" in str(warning.message) for warning in seen)
    said += sum("session.step" in line and "closed" in line for line in judge.printed.splitlines())
    return judge.is_true("warnings", said == 1, said, "1")


@program("report", "the first 30 of 150 steps are slow: the mean is the run's, or the report says that it is not")
def slow_beginning_said() -> Judge:
    model = Chain(Sleep(2, 2), Sleep(1, 1))
    session, optimizer = instrumented(model)
    for number, batch in enumerate(clocked_steps(batches(150))):
        model[0].forward_ms = 12.0 if number < 30 else 2.0  # type: ignore[assignment]
        train_step(model, optimizer, batch)
    judge = Judge(session).steps()
    truth = fmean(step.step_ns for step in CLOCK.steps[WARMUP:])
    if abs(judge.summary.step_mean_ns / truth - 1) <= 0.1:
        return judge.time("step of the run", truth, judge.summary.step_mean_ns, 0.1)
    said = re.search(r"mean ([\d.]+) ms over \d+ steps; the recorded ones: mean", judge.all_text)
    return judge.time("mean over all steps", truth, float(said[1]) * 1e6 if said else None)


@program("report", "a model that nothing trains: the report says why there is no step")
def nothing_trained() -> Judge:
    model = Chain(Sleep(1, 1))
    session = autoprof.instrument(model)
    CLOCK.start()
    for batch in batches(30):
        with torch.no_grad():
            model(batch)
    CLOCK.step()
    return Judge(session).says("why", r"no (training|backward|optimizer)|session\.step\(\)|without gradients")


@program("report", "a model that a program closes at once: no failure, and a sentence")
def closed_at_once() -> Judge:
    session = autoprof.instrument(Chain(Sleep(1, 1)))
    return Judge(session).says("no step", r"no step|0 steps|nothing was recorded")
