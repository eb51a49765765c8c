"""Which optimizer steps make one training step: told from the order in which they came before."""

from __future__ import annotations

import pytest

from autoprof.session.optimizer_cycle import HISTORY, OPTIMIZERS, OptimizerCycle


class Loop:
    """A training loop with a forward before each optimizer step: there a whole training step ends."""

    def __init__(self, expected: int = 0) -> None:
        self.cycle = OptimizerCycle(expected)
        self.steps: list[str] = []
        self.held: list[int] = []
        self._open = ""

    def run(self, text: str) -> None:
        """Run the optimizers of these letters."""
        for letter in text:
            if self.cycle.has_stepped:
                if self.cycle.is_whole:
                    self._end()
                else:
                    self.cycle.wait()
            self.cycle.add(ord(letter), owned=True)
            self._open += letter

    def _end(self) -> None:
        if self._open:
            self.steps.append(self._open)
            self.held.append(self.cycle.steps_in_one)
            self._open = ""
        self.cycle.begin_step()

    def ended(self, text: str) -> list[str]:
        """Return the training steps of such a run, once the loop has ended."""
        self.run(text)
        self._end()
        return self.steps


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("aaaa", "a a a a"),
        ("dgdgdgdg", "d g dg dg dg"),
        ("dddgdddgdddgdddg", "d d d g d d dg d d dg d d dg"),
        ("abcabcabcabc", "a b c abc abc abc"),
    ],
)
def test_without_a_number_the_first_round_teaches_the_order(text: str, steps: str) -> None:
    """A step waits for the optimizer that is due next, unless that one has stepped in it."""
    assert Loop().ended(text) == steps.split()


@pytest.mark.parametrize(
    ("expected", "text", "steps", "held"),
    [
        (1, "aaa", "a a a", [1, 1, 1]),
        (2, "dgdgdg", "dg dg dg", [1, 1, 1]),
        (3, "abcabc", "abc abc", [1, 1]),
        (2, "aaaaa", "aa a a a", [2, 1, 1, 1]),  # the second one never steps
        (2, "dddgdddgdddg", "dd d gd d dg d d dg", [2, 1, 1, 1, 1, 1, 1, 1]),
    ],
)
def test_with_a_number_the_first_step_waits_for_as_many(expected: int, text: str, steps: str, held: list[int]) -> None:
    """If one steps twice instead, the step was several."""
    loop = Loop(expected)
    assert loop.ended(text) == steps.split()
    assert loop.held == held


def test_two_steps_of_one_optimizer_without_a_forward_between_them_are_one() -> None:
    """Only a step that waited for another one held several."""
    cycle = OptimizerCycle()
    cycle.add(1)
    cycle.add(1)
    assert (cycle.steps_in_one, cycle.is_whole) == (1, True)
    cycle.wait()
    cycle.add(1)
    assert cycle.steps_in_one == 2
    cycle.add(1)
    assert cycle.steps_in_one == 2
    cycle.begin_step()
    assert cycle.steps_in_one == 1


def test_each_step_is_whole_where_each_has_an_optimizer_of_its_own() -> None:
    """Such a program has no order to learn."""
    loop = Loop()
    letters = "".join(chr(1000 + i) for i in range(10 * OPTIMIZERS))
    assert loop.ended(letters) == list(letters)


def test_a_program_that_makes_an_optimizer_for_each_client_has_a_step_for_each_update() -> None:
    """Federated rounds: 20 clients in turn, each with an optimizer of its own that makes five updates."""
    updates = "".join(letter * 5 for letter in "abcdefghijklmnopqrst")
    assert Loop().ended(updates) == list(updates)


def test_a_new_order_is_learnt_once_the_old_one_is_forgotten() -> None:
    """A GAN that goes on with its generator alone."""
    steps = Loop().ended("dg" * 8 + "g" * 2 * HISTORY)
    assert steps[-HISTORY:] == ["g"] * HISTORY


@pytest.mark.parametrize(
    ("before", "opened", "whole"),
    [
        ("xbx", "cx", True),
        ("xbxc", "x", False),
        ("xbxc", "bx", False),
        ("xbx", "x", True),
        ("xgyxgyxgx", "xg", False),
    ],
)
def test_the_longest_sequence_decides_and_a_tie_goes_to_the_optimizer_that_has_stepped(
    before: str, opened: str, whole: bool
) -> None:
    """After x, two others came equally often: the step is whole where one of them has stepped in it."""
    cycle = OptimizerCycle()
    for key in before:
        cycle.add(ord(key))
    cycle.begin_step()
    for key in opened:
        cycle.add(ord(key))
    assert cycle.is_whole == whole
