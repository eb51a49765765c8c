"""The report itself: its length, its last line, short runs, and what happens after the end."""

from __future__ import annotations

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
from autoprof import Summary

from ..clock import CLOCK
from ..judge import PRINTED, WARMUP, Judge
from ..parts import Block, Chain, Sleep, batches, sgd, train, train_step
from ..registry import program


def large() -> Chain:
    """Return a model with many names."""
    return Chain(*(nn.Sequential(Block((0.3, 0.3), (0.2, 0.2)), nn.Linear(16, 16), nn.ReLU()) for _ in range(6)))


def end(model: Any, steps: int) -> tuple[Judge, list[str]]:
    """Train, close, and return the lines of the report, with the empty one before it."""
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    train(model, optimizer, steps)
    sys.stdout.flush()
    before = len(Path(PRINTED).read_text(encoding="utf-8")) if Path(PRINTED).exists() else 0
    session.close()
    sys.stdout.flush()
    judge = Judge(session)
    text = judge.printed[before:].rstrip("\n")
    return judge, text[
        max(text.find("\n\u2500"), 0) :
    ].splitlines()  # a last line of progress may come before the report


@program("report", "the report of a large model has at most 40 lines of at most 80 columns")
def report_length() -> Judge:
    judge, lines = end(large(), 100)
    judge.is_true("lines", 0 < len(lines) <= 40, len(lines), "1 to 40")
    widest = max((len(line) for line in lines[:-1]), default=0)
    return judge.is_true("columns", widest <= 80, widest, "at most 80")


@program("report", "the last line of the report is the run's folder")
def report_last_line() -> Judge:
    judge, lines = end(large(), 60)
    last = lines[-1] if lines else "nothing"
    folder = judge.folder
    return judge.is_true("last line", folder is not None and folder.name in last, last, "the folder")


@program("report", "the card comes first: what, why, next and where are above the phases")
def report_card_first() -> Judge:
    judge, lines = end(large(), 60)
    text = "\n".join(lines).lower()
    card, phases = text.find("verdict"), text.find("phase ")
    return judge.is_true("verdict above phases", 0 <= card < phases, f"verdict at {card}, phases at {phases}")


def _short(steps: int, share: float) -> Judge:
    model = Chain(Sleep(2, 3), Sleep(1, 2))
    judge, _ = end(model, steps)
    return judge.steps().recorded(share)


@program("report", "most of 60 steps are recorded")
def short_run_60() -> Judge:
    return _short(60, 0.5)


@program("report", "most of 80 steps are recorded")
def short_run_80() -> Judge:
    return _short(80, 0.5)


@program("report", "most of 200 steps are recorded")
def short_run_200() -> Judge:
    return _short(200, 0.5)


@program("report", "step() after close() warns once and raises nothing")
def step_after_close() -> Judge:
    model = Chain(Sleep(1, 1))
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
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


@program("report", "in a notebook the summary shows itself as HTML")
def summary_as_html() -> Judge:
    judge, _ = end(Chain(Sleep(1, 1)), 20)
    show = getattr(judge.summary, "_repr_html_", None)
    text = show() if show else ""
    return judge.is_true("_repr_html_", "<" in text and "step" in text, text[:60] or "absent", "HTML")


@program("report", "autoprof show without an argument opens the latest run")
def show_latest() -> Judge:
    judge, _ = end(Chain(Sleep(2, 2), Sleep(1, 1)), 40)
    shown = subprocess.run([sys.executable, "-m", "autoprof", "show"], capture_output=True, text=True, check=False)
    return judge.is_true(
        "autoprof show", shown.returncode == 0 and "step" in shown.stdout, shown.stderr[:80] or "shown"
    )


@program("report", "summary.json holds the figures of session.summary()")
def summary_of_the_folder() -> Judge:
    judge, _ = end(Chain(Sleep(2, 2), Sleep(1, 1)), 40)
    saved = autoprof.read_run(judge.folder).summary if judge.folder else None
    same = isinstance(saved, Summary) and (saved.steps, saved.phases, saved.rows) == (
        judge.summary.steps,
        judge.summary.phases,
        judge.summary.rows,
    )
    return judge.is_true("the same figures", same)


@program("report", "summary.txt holds the full report, longer than the printed one")
def full_report_in_the_folder() -> Judge:
    judge, lines = end(large(), 60)
    saved = (judge.folder / "summary.txt").read_text(encoding="utf-8").splitlines() if judge.folder else []
    return judge.is_true("lines in summary.txt", len(saved) > len(lines), f"{len(saved)}, printed {len(lines)}", "more")


@program("report", "the first 30 of 150 steps are slow: the mean is that of the run, or the report says that it is not")
def slow_beginning_said() -> Judge:
    model = Chain(Sleep(2, 2), Sleep(1, 1))
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for number, batch in enumerate(batches(150)):
        model[0].forward_ms = 12.0 if number < 30 else 2.0  # type: ignore[assignment]
        train_step(model, optimizer, batch)
        CLOCK.step()
    session.close()
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
    session.close()
    return Judge(session).says("why", r"no (training|backward|optimizer)|session\.step\(\)|without gradients")


@program("report", "a model that a program closes at once: no failure, and a sentence")
def closed_at_once() -> Judge:
    session = autoprof.instrument(Chain(Sleep(1, 1)))
    session.close()
    return Judge(session).says("no step", r"no step|0 steps|nothing was recorded")
