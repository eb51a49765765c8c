"""A run without a step says so once, and only where the program could have made one."""

import pytest
import torch
from torch import nn

import autoprof

NO_UPDATE = "no torch optimizer made a step"


def train(steps: int, *, fails: bool = False) -> list[str]:
    """Return the notes of a training without an optimizer of torch."""
    model = nn.Linear(2, 1)
    session = autoprof.instrument(model, {"sinks": {}})
    with session:
        for _ in range(steps):
            model(torch.ones(1, 2)).sum().backward()
            if fails:
                raise ArithmeticError
    return list(session.summary().notes)


def test_a_training_without_an_optimizer_is_told_what_to_call() -> None:
    assert sum(NO_UPDATE in note for note in train(3)) == 1


def test_a_program_that_dies_in_its_first_step_is_told_nothing_about_steps(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ArithmeticError):
        train(1, fails=True)
    assert NO_UPDATE not in caplog.text
