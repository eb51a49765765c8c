"""Ranges of a deep capture's trace: nested and named as the spans are, on any nest of modules."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from engine_laws import Watched, everything
from hypothesis import HealthCheck, assume, given, settings
from random_nests import build, nests
from torch import nn

from autoprof._capture.hooks.ranges import Ranges
from autoprof._flight.named import NamedRanges
from autoprof._targets import select_targets
from autoprof.frame import Phase
from autoprof.sinks import load_config


class Listener:
    """Hear ranges open and close; one that is closed out of turn is an error."""

    def __init__(self) -> None:
        self.opened: Counter[str] = Counter()
        self.open: list[str] = []

    def __call__(self, name: str) -> Any:
        self.opened[name] += 1
        self.open.append(name)

        def close() -> None:
            assert self.open.pop() == name

        return close


def small_enough(model: nn.Module, x: torch.Tensor) -> bool:
    """Say whether the model trains, in not too many calls; a nest may multiply what it calls."""
    calls = 0

    def count(*_args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > 300:
            raise RuntimeError("too large")

    counters = [module.register_forward_pre_hook(count) for module in model.modules()]
    try:
        model(x.clone().requires_grad_()).sum().backward()
    except (RuntimeError, AttributeError, TypeError):
        return False
    finally:
        for counter in counters:
            counter.remove()
    return True


@settings(max_examples=40, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(nests)
def test_on_any_nest_the_ranges_are_the_spans(description: Any) -> None:
    """Each span that took time is one range, no range is invented, each is closed in turn and none is left open."""
    torch.manual_seed(0)
    model, x = build(description), torch.randn(2, 4)
    assume(small_enough(model, x))
    listener, failures = Listener(), list[str]()
    config = everything(targets=[{"match": ".*|"}])
    named = NamedRanges(select_targets(model, load_config(config)), failures.append, {})
    named.ranges = Ranges(listener)
    with Watched(model, config=config) as watched:
        named.attach()
        for _ in range(2):
            model(x.clone().requires_grad_()).sum().backward()
            watched.step()
            assert listener.open == []
        named.detach()
    assert failures == []
    spans, timed = Counter[str](), Counter[str]()
    for span in (span for frame in watched.frames for span in frame.spans if span.fqn is not None):
        if not span.calls and span.phase is not Phase.RECOMPUTE:  # a later checkpoint of one call has a range, too
            continue
        name = span.phase.qualify(span.name)
        spans[name] += 1
        # A checkpointed function that is no target has a span, but no range.
        timed[name] += span.phase is not Phase.RECOMPUTE and (span.host_ns > 0 or span.phase is not Phase.BACKWARD)
    assert timed <= listener.opened <= spans
