"""The laws of the account, and a referee that counts backward passes by another way than the engine does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from bits import tensors_in
from torch import Tensor, nn

from autoprof import Phase, StepFrame
from autoprof.resolve import RawStep
from autoprof.session import pipeline
from autoprof.session.pipeline import Pipeline
from autoprof.testing import FakeClock, ListSink, open_session

EVERYTHING: dict[str, Any] = {
    "targets": [{"match": ".*"}],
    "step": "manual",
    "sample": {"warmup": 0, "budget": None},
    "flops": "off",  # with no budget it is counted at once, and the step after a count is excluded
    "sinks": {},
}
"""Every module, all phases, explicit steps, no warm-up, no sinks of the configuration's."""


def everything(**changes: Any) -> dict[str, Any]:
    """Return the configuration that records everything, changed."""
    return {**EVERYTHING, **changes}


class Watched:
    """A model under observation on a fake clock; leaving it closes the session, ``frames`` has what was recorded."""

    def __init__(self, model: nn.Module, *, clock: Any = None, config: Any = None, **more: Any) -> None:
        self.sink = ListSink()
        self.clock = FakeClock(tick_ns=1) if clock is None else clock
        sinks = [*more.pop("sinks", ()), self.sink]
        self.session = open_session(model, config or EVERYTHING, clock=self.clock, sinks=sinks, **more)

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_error: object) -> None:
        self.session.close()

    def step(self) -> None:
        """End the step."""
        self.session.step()

    @property
    def frames(self) -> list[StepFrame]:
        """The frames so far."""
        self.session.summary()
        return self.sink.frames


def pass_on_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pass each step on at its end, as if half a second had passed."""
    submit = Pipeline.submit

    def submit_and_flush(one: Pipeline, raw: RawStep) -> None:
        submit(one, raw)
        one.flush()

    monkeypatch.setattr(Pipeline, "submit", submit_and_flush)


def make_each_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a whole pass at the end of each step, after which sinks show what they have, on a machine of any speed."""
    for name, ns in (("FIRST_PASS_NS", 0), ("PASS_EVERY_NS", 0), ("PASS_NS", 10**12)):
        monkeypatch.setattr(pipeline, name, ns)


def check_laws(frame: StepFrame) -> None:
    """Assert that the step breaks no law of the account, and that its phases make it, exactly."""
    assert frame.check() == []
    assert sum(frame.phase_ns().values()) == frame.step_ns


def count(frame: StepFrame, phase: Phase) -> Counter[str]:
    """Count the calls of a phase by name; what a backward pass spends in no module is left out."""
    calls: Counter[str] = Counter()
    for span in frame.spans:
        if span.phase is phase and span.name != "(backward)":
            calls[span.name] += span.calls
    return calls


def tree(frame: StepFrame, *phases: Phase) -> list[str]:
    """Return the spans (of these phases) as indented lines, in order; gaps of a backward pass are left out."""
    depth: dict[int | None, int] = {None: -1}
    lines = []
    for i, span in enumerate(frame.spans):
        shown = span.name != "(backward)" and (not phases or span.phase in phases)
        depth[i] = depth[span.parent] + shown
        if shown:
            lines.append("  " * depth[i] + f"{span.name} {span.phase}")
    return lines


class Referee:
    """Hook every module by itself and count calls, and calls whose output received a gradient, by step and name.

    ``received`` has the calls of which a tensor hook on an output that they made fired, once a backward pass. ``ran``
    has the calls of which a node of an output ran, which may also happen for the sake of another output, and the calls
    around them that had returned by then. ``blind`` tells that torch would not say what made an output.
    """

    def __init__(self, name_of: dict[nn.Module, str]) -> None:
        self.blind = False
        self.paused = False
        self.step = 0
        self.calls: list[Counter[tuple[str, bool]]] = [Counter()]
        self.received: list[set[tuple[str, int, int]]] = [set()]
        self.ran: list[set[tuple[str, int, int]]] = [set()]
        self._serial = 0
        self._open: list[tuple[str, int]] = []
        self._first_nodes: list[int] = []
        for module, name in name_of.items():
            module.register_forward_pre_hook(self._enter(name))
            module.register_forward_hook(self._leave, always_call=True)

    def next_step(self) -> None:
        """Count for the next step from now on."""
        self.step += 1
        self.calls.append(Counter())
        self.received.append(set())
        self.ran.append(set())

    def _enter(self, name: str) -> Any:
        def enter(module: nn.Module, args: Any) -> None:
            if self.paused:
                return
            self._serial += 1
            self._open.append((name, self._serial))
            self._first_nodes.append(torch._C._autograd._get_sequence_nr())
            self.calls[self.step][name, torch._C._current_graph_task_id() != -1] += 1

        return enter

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if self.paused:
            return
        path = tuple(self._open)
        self._open.pop()
        first_node = self._first_nodes.pop()

        def received(_grad: Tensor) -> None:
            self.received[self.step].add((*path[-1], torch._C._current_graph_task_id()))

        def ran(_grads: Any) -> None:
            task = torch._C._current_graph_task_id()
            self.ran[self.step].update((*call, task) for call in path if call not in self._open)

        for tensor in tensors_in(output):
            try:
                node = tensor.grad_fn
            except RuntimeError:  # a view of a custom Function's output that was changed in place has none to show
                self.blind = True
                continue
            if node is not None:
                if node._sequence_nr() >= first_node:  # a call that returns its input has no backward
                    tensor.register_hook(received)
                node.register_prehook(ran)

    def check(self, frame: StepFrame, step: int) -> None:
        """Assert that the frame of a step (counted from 0) has the calls and the backward spans that were seen."""
        calls = self.calls[step]
        assert count(frame, Phase.FORWARD) == Counter({name: n for (name, inside), n in calls.items() if not inside})
        recomputed = Counter({name: n for (name, inside), n in calls.items() if inside})
        counted = count(frame, Phase.RECOMPUTE)
        assert not recomputed - counted
        for name, more in (counted - recomputed).items():  # a call that contains a checkpoint has its recompute, too
            around = sum(one[name, inside] for one in self.calls[: step + 1] for inside in (False, True))
            assert name == "(recompute)" or more <= around, name
        backward = count(frame, Phase.BACKWARD)
        # A gradient that autograd.grad only hands out starts no node: what was asked for has no backward of its own.
        received = Counter(name for name, _, _ in self.received[step] & self.ran[step])
        ran = Counter(name for name, _, _ in self.ran[step])
        for name in {*backward, *received, *ran}:
            assert received[name] <= backward[name] <= ran[name], (name, received[name], backward[name], ran[name])
