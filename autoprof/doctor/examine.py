"""Run all checks of an installation and a model in order; each gives one result."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TextIO

import torch

from .._capture.hooks.placement import find_anchor
from .._targets import Coverage, predict_coverage, select_targets
from ..config import Config, parse_config
from ..devices import Clock, device_of
from .hazards import check_hazards
from .installation import check_fonts, check_output, check_switch, check_terminal, check_versions
from .measures import check_clock, check_mark_cost, lowest_mark_cost
from .model_checks import (
    check_account,
    check_backward,
    check_coverage,
    check_hooks_removed,
    check_overhead,
    compare_trials,
)
from .result import Report, Result, unknown
from .subject import RETURNS, Subject
from .trial import Trials

EVERY_MODULE = "targets: [{match: '.*'}]"
"""The targets without a configuration: every module, in all phases."""


def examine(
    subject: Subject,
    config: Config | None = None,
    *,
    stream: TextIO | None = None,
    progress: Callable[[str], None] = lambda _step: None,
) -> Report:
    """Check the installation, the process and the subject, with a configuration or with every module as a target.

    ``stream`` is the stream that a run would show its panel on; ``progress`` is called with the name of each part.
    The subject's model is unchanged afterwards. Raises ``AutoprofError`` if the configuration does not fit the model
    or its step fails without autoprof.
    """
    settings = parse_config(EVERY_MODULE) if config is None else config
    targets = select_targets(subject.model, settings)
    clock, note = _clock(subject)
    progress("checking the installation")
    results = [
        check_versions(),
        check_switch(os.environ, settings),
        check_output(settings),
        check_terminal(stream or sys.stdout, settings),
        check_fonts(target.name for target in targets),
    ]
    progress("measuring the clock and the cost of a span")
    # Before the trials: their own profile function and load would be reported as hazards.
    results += [*check_hazards(os.environ, subject.model), check_clock(clock), check_mark_cost(lowest_mark_cost(clock))]
    if note is not None:
        results.append(unknown("device-clock", note, "device times are unavailable here"))
    found, modules = _run_trials(subject, settings, progress, chosen=config is not None)
    return Report(subject.name, (*results, *found), modules)


def _run_trials(
    subject: Subject, settings: Config, progress: Callable[[str], None], *, chosen: bool
) -> tuple[list[Result], tuple[Coverage, ...]]:
    """Run the checks that need a training step."""
    if not subject.runnable:
        modules = [target.module for target in select_targets(subject.model, settings)] if chosen else None
        advice = f"return (model, batch) from the factory ({RETURNS}), or name a batch with --input"
        return [unknown("identity", "no batch to run a step with", advice)], predict_coverage(subject.model, modules)
    progress("running steps without and with autoprof")
    trials = Trials(subject, settings, everything=not chosen)
    identity, bare, profiled = compare_trials(trials)
    if profiled is None or profiled.error is not None:
        return [identity], ()
    progress("observing a step")
    observed = trials.observed(profiled)
    results = [
        identity,
        check_hooks_removed(profiled),
        check_coverage(observed, chosen=chosen),
        check_account(profiled),
        check_backward(profiled, observed),
        check_overhead(bare, profiled, settings.sample, chosen=chosen),
    ]
    return results, observed.modules


def _clock(subject: Subject) -> tuple[Clock, str | None]:
    anchor = find_anchor(subject.model)
    device = torch.device("cpu") if anchor is None else anchor.device
    return device_of(device).clock(device)
