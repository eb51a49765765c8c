"""The zoo sees harm where there is some: each harmful instrumentation is caught by the check made for it."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import zoo_harness
from engine_laws import Watched
from torch import nn
from zoo_case import Case, Subject, normal, subject
from zoo_harness import EVERYTHING, run_case

Harm = Callable[[nn.Module], None]


def _model() -> Subject:
    return subject(nn.Sequential(nn.Linear(4, 4), nn.Identity(), nn.Tanh(), nn.Linear(4, 4)), normal(3, 4, grad=True))


CASE = Case("test", "a small model", _model)
held: list[Any] = []


def _after(hook: Callable[..., Any]) -> Harm:
    def harm(model: nn.Module) -> None:
        for module in model.modules():
            module.register_forward_hook(hook)

    return harm


def _keep_for_a_step(module: nn.Module, args: Any, output: Any) -> None:
    held[:] = [*held[-3:], output]


def _keep_a_little_longer(module: nn.Module, args: Any, output: torch.Tensor) -> None:
    held.append(output)
    output.register_hook(lambda _grad: held.clear())


def _take_memory(module: nn.Module, args: Any, output: Any) -> None:
    torch.empty(7)


def _own_cycle(module: nn.Module, args: Any, output: Any) -> None:
    cycle: list[Any] = [_Ours()]
    cycle.append(cycle)


class _Ours:
    """Something that says it comes from autoprof."""


_Ours.__module__ = "autoprof.test"


def _no_harm(module: nn.Module, args: Any, output: Any) -> None:
    pass


HARMS: dict[str, tuple[Harm, str]] = {
    "draws a number": (_after(lambda *_: torch.rand(1) and None), "not the same bits"),
    "draws a number of Python's": (_after(lambda *_: random.random() and None), "not the same bits"),
    "scales a gradient": (
        _after(lambda m, a, y: y.register_hook(lambda g: g * 1.0000002) and None),
        "not the same bits",
    ),
    "replaces an output": (_after(lambda m, args, output: output.view_as(output)), "do not see the same"),
    "keeps outputs": (_after(_keep_for_a_step), "do not see the same"),
    "keeps outputs too long": (_after(_keep_a_little_longer), "memory is not taken and freed"),
    "takes memory": (_after(_take_memory), "memory is not taken and freed"),
    "leaves a cycle": (_after(_own_cycle), "reference cycles of ours"),
}


def _run(monkeypatch: pytest.MonkeyPatch, harm: Harm, **config: Any) -> zoo_harness.Verdict:
    def watch(subject: Subject, **more: Any) -> Watched:
        harm(subject.model)
        return Watched(subject.model, config={**EVERYTHING, **config}, **more)

    monkeypatch.setattr(zoo_harness, "_watch", watch)
    held.clear()
    return run_case(CASE)


@pytest.mark.parametrize("name", HARMS)
def test_harm_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """By the check that is made for it."""
    harm, said = HARMS[name]
    verdict = _run(monkeypatch, harm)
    assert not verdict.passed
    assert any(said in problem for problem in verdict.problems), verdict.problems


def test_no_harm_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks that do nothing pass."""
    assert _run(monkeypatch, _after(_no_harm)).passed


def test_a_backward_that_is_missing_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coverage is counted against what the bare run's own hooks saw."""
    verdict = _run(monkeypatch, _after(_no_harm), targets=[{"match": "", "name": "(root)"}, {"match": "[0-2]"}])
    assert verdict.covered == verdict.received - 2
    assert any("without a backward span: {'3': 1}" in problem for problem in verdict.problems)
