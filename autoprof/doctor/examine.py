"""The examination: every check in order, each one a result."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TextIO

import torch

from .._capture.probes import find_anchor
from .._targets import Coverage, predict_coverage, select_targets
from ..config import Config, parse_config
from ..devices import Clock, device_of
from .hazards import check_hazards
from .installation import check_fonts, check_output, check_switch, check_terminal, check_versions
from .measures import best_price, check_clock, check_price
from .model_checks import check_account, check_backward, check_coverage, check_left, check_overhead, compare_trials
from .result import Report, Result, unknown
from .subject import RETURNS, Subject
from .trial import Trials

EVERY_MODULE = "targets: [{match: '.*'}]"
"""What is timed where the user names no configuration: every module, in all phases."""


def examine(
    subject: Subject,
    config: Config | None = None,
    *,
    stream: TextIO | None = None,
    say: Callable[[str], None] = lambda _what: None,
) -> Report:
    """Look over the installation, the process and the subject, under the user's configuration or with every module.

    ``stream`` is where a run would show its table; ``say`` is told what goes on. Leaves the subject's model as it
    was. Raises ``AutoprofError`` where the configuration does not fit the model, or its step fails without autoprof.
    """
    settings = parse_config(EVERY_MODULE) if config is None else config
    targets = select_targets(subject.model, settings)
    clock, note = _clock(subject)
    say("looking at the installation")
    results = [
        check_versions(),
        check_switch(os.environ, settings),
        check_output(settings),
        check_terminal(stream or sys.stdout, settings),
        check_fonts(target.name for target in targets),
    ]
    say("measuring the clock and the cost of a span")
    # Before the trials: a profile function of theirs or the load that they make are no hazards of the user's.
    results += [*check_hazards(os.environ, subject.model), check_clock(clock), check_price(best_price(clock))]
    if note is not None:
        results.append(unknown("device-clock", note, "times of the device cannot be had here"))
    found, modules = _try(subject, settings, say, chosen=config is not None)
    return Report(subject.name, (*results, *found), modules)


def _try(
    subject: Subject, settings: Config, say: Callable[[str], None], *, chosen: bool
) -> tuple[list[Result], tuple[Coverage, ...]]:
    """Run the checks that need a step."""
    if not subject.runnable:
        modules = [target.module for target in select_targets(subject.model, settings)] if chosen else None
        then = f"return (model, batch) from the factory ({RETURNS}), or name a batch with --input"
        return [unknown("identity", "there is no batch to run a step with", then)], predict_coverage(
            subject.model, modules
        )
    say("running steps without and with autoprof")
    trials = Trials(subject, settings, everything=not chosen)
    identity, bare, profiled = compare_trials(trials)
    if profiled is None or profiled.error is not None:
        return [identity], ()
    say("watching a step")
    watched = trials.watched(profiled)
    results = [
        identity,
        check_left(profiled),
        check_coverage(watched, chosen=chosen),
        check_account(profiled),
        check_backward(profiled, watched),
        check_overhead(bare, profiled, settings.sample, chosen=chosen),
    ]
    return results, watched.modules


def _clock(subject: Subject) -> tuple[Clock, str | None]:
    anchor = find_anchor(subject.model)
    device = torch.device("cpu") if anchor is None else anchor.device
    return device_of(device).clock(device)
