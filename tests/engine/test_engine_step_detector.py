"""The rules that tell training from validation, as tables of events and of the decisions that follow from them.

A program is a line of words (``event_programs``); the other column holds the decisions in their order.
"""

from typing import Any, get_args

import pytest
from event_programs import Program

from autoprof.session import events, training_hooks, training_steps
from autoprof.session.step_detector import MIN_UPDATES


def check(text: str, expected: str, **options: Any) -> None:
    """Compare the decisions of a program with those expected."""
    assert Program(**options).run(text) == " ".join(expected.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The next training forward after an update ends the step; neither the first one does, nor one before it.
        ("forward forward backward update ; forward", "end"),
        ("forward forward backward update", ""),
        # A fetch of a loader that feeds training ends it, and so does a loader that was given to the session.
        ("fetch train fetch:unknown ; fetch", "end"),
        ("fetch train ; fetch:unknown", ""),
        ("train ; fetch:unknown:given", "end"),
        # A backward pass ends it where no forward was seen.
        ("backward update ; backward update backward update", "end end"),
        # A closure: the step ends with the optimizer's step, unless its batch was fetched before.
        ("; begin forward backward end:1:last", "TrainsInUpdate end"),
        ("; begin forward backward end:1", "TrainsInUpdate"),
        ("; fetch begin forward backward end:1:last", "TrainsInUpdate"),
        ("fetch begin forward backward end:1:last ; fetch", "end"),
        ("forward begin forward end:1:last ; forward", "end"),
        # An optimizer inside another makes no update of its own; an exception in one hides no later step.
        ("forward begin:2 update end:2 ; forward", "end"),
        ("forward begin ; train train", "end"),
        # One of another model ends no step.
        ("train update:2:foreign update:2:foreign ; forward", "end"),
        ("forward backward ; update:2:foreign forward", ""),
        # Optimizers that step inside a backward pass, one for each parameter, are one.
        ("forward update:1:inside update:2:inside ; forward update:1:inside update:2:inside forward", "end end"),
        # Calls of the program.
        ("train ; step step", "end end"),
        ("step train ; forward backward fetch:feeds:given", ""),
        # Nothing in a pause ends a step.
        ("fetch train ; pause forward fetch backward resume", "exclude:pause include:pause"),
        ("fetch train pause resume ; forward", "end"),
    ],
)
def test_a_step_ends_where_the_next_iteration_begins(text: str, expected: str) -> None:
    """With one optimizer."""
    check(text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Two optimizers are expected, and only one steps: a second fetch of the loader ends the step.
        ("fetch:a:given train ; fetch:a:given", "end"),
        # A GAN's two halves may each have a loader.
        ("fetch:a:given train ; fetch:b:given", ""),
        # A step that held those of one optimizer only.
        ("train train ; forward", "end*2"),
        ("train train ; step", "end"),
    ],
)
def test_a_step_waits_for_the_optimizers_that_are_expected(text: str, expected: str) -> None:
    """Two of them."""
    check(text, expected, optimizers=2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Updates that follow on forwards without gradients alone: a zeroth-order method.
        ("forward*2:ungraded update ; forward*2:ungraded update forward:ungraded", "end end"),
        # A rollout without gradients before a backward pass is part of the step that it is in.
        ("train forward:ungraded train ; forward:ungraded", ""),
        # An attack on the model in ``eval`` mode, with gradients, before each forward in ``train`` mode.
        ("forward:eval train eval ; forward:eval training train eval forward:eval", "end end"),
        ("train*2 eval forward:eval train eval forward:eval train eval forward:eval train ; eval forward:eval", "end"),
        # One forward in ``eval`` mode without gradients in each step: the model labels its own batches.
        ("eval forward:eval:ungraded train ; eval forward:eval:ungraded training train", "end"),
        (
            "train train eval forward:eval:ungraded train eval forward:eval:ungraded train eval forward:eval:ungraded "
            "train ; eval forward:eval:ungraded train",
            "end",
        ),
        # Several of them in a row are validation.
        ("eval forward:eval:ungraded train ; forward:eval:ungraded forward:eval:ungraded", "exclude:validation"),
        ("train*3 ; forward*2:eval:ungraded forward", "exclude:validation include:validation end"),
        # It is validation where it comes once.
        ("train*3 ; eval forward:eval forward", "exclude:validation include:validation end"),
        # Validation without gradients stays what it is.
        ("forward:eval train ; eval forward:eval:ungraded forward", "exclude:validation include:validation end"),
    ],
)
def test_forwards_that_a_method_of_training_needs_belong_to_its_steps(text: str, expected: str) -> None:
    """Also without gradients, or in ``eval`` mode."""
    check(text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A forward in ``eval`` mode begins validation; one that trains ends it.
        ("train*2 ; forward:eval:ungraded forward", "exclude:validation include:validation end"),
        ("train ; forward:eval forward", "exclude:validation include:validation end"),
        # The loader is known from then on.
        ("fetch train fetch:checks forward:eval:ungraded fetch train ; fetch:checks", "exclude:validation"),
        ("fetch train fetch:checks forward:eval:ungraded ; fetch", "include:validation end"),
        # The batch of a loader that feeds training was fetched for the step, and evaluated as well.
        ("fetch train fetch ; forward:eval:ungraded", "exclude:validation"),
        # A fetch under ``no_grad`` begins validation after an update; before it, it is part of the step.
        ("forward ; fetch:a:ungraded", ""),
        ("train ; fetch:a:ungraded train", "exclude:validation include:validation end"),
        # A loader that was asked several times during validation feeds validation.
        ("train fetch:a:ungraded fetch:a:ungraded train ; fetch:a", "end"),
        ("train fetch:a:ungraded fetch:a:ungraded fetch:a:ungraded train ; fetch:a", "exclude:validation"),
        # The call of ``eval`` begins validation after an update only; that of ``train`` ends it.
        ("train eval forward:eval:ungraded ; training", "include:validation"),
        ("train eval training ; fetch:new forward", "end"),
        ("; eval", ""),
        ("forward ; eval", ""),
        ("train ; training eval training forward", "exclude:validation include:validation end"),
        ("train begin:2 ; eval", ""),
        # A backward pass shows that the model trains in ``eval`` mode: the step is in no statistic.
        ("train*2 ; forward:eval backward", "exclude:validation ExcludeOpen include:validation"),
        ("train*2 forward:eval backward update ; forward:eval", "end*2"),
        # One after validation without gradients is of a forward that was not seen: another model begins to train.
        ("train*2 ; forward:eval:ungraded backward", "exclude:validation include:validation end"),
        # From the first step on in ``eval`` mode.
        ("forward:eval backward update ; forward:eval", "end"),
        # A loader of unknown use, given to the session, ends no step during validation.
        ("train forward:eval:ungraded ; fetch:new:given", ""),
        # In inference mode no output can take part in training: validation before the update, without ``eval``.
        ("train forward backward ; forward*2:ungraded:inference begin", "exclude:validation include:validation"),
        ("train ; forward:ungraded:inference", ""),
        # A trainer may validate before it trains in a closure.
        ("fetch:a:ungraded ; begin forward end:1:last", "include:validation TrainsInUpdate end"),
    ],
)
def test_validation_is_recognised(text: str, expected: str) -> None:
    """By the mode of the model, by its loader, and by what gradients need."""
    check(text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train ; pause resume", "exclude:pause include:pause"),
        # Saving during validation is no part of it; a pause inside a pause is part of that one.
        (
            "train eval ; pause:torch.save resume forward",
            "exclude:torch.save include:torch.save include:validation end",
        ),
        ("train ; pause pause:save resume resume", "exclude:pause exclude:save include:None include:pause"),
        # Validation that is named, and was recognised already, ends where the program says so.
        ("train eval ; pause:validation forward:eval:ungraded resume", "include:validation"),
        ("train fetch:a:ungraded ; pause:validation fetch:a:ungraded resume", "include:validation"),
    ],
)
def test_a_pause_belongs_to_no_step(text: str, expected: str) -> None:
    """Whatever is in it."""
    check(text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The first module of the step, and where that is known the next.
        ("call:first call:second ; update", "follow:first"),
        ("call:first call:second update call:first call:second ; update", "follow:second"),
        ("call:first update call:first ; update", ""),
        # In front of a backward pass, the modules called since the update.
        ("update call:first ; backward", "follow:first end"),
        # Where forwards are reported nothing is searched.
        ("forward call:first ; update", ""),
    ],
)
def test_modules_are_followed_that_the_program_calls_in_place_of_the_model(text: str, expected: str) -> None:
    """From the update on."""
    check(text, expected)


def test_forwards_on_another_thread_are_passed_over_once_this_one_trains() -> None:
    """An actor, or an evaluation beside the training."""
    check(f"train*{MIN_UPDATES} thread:1 ; eval forward:eval:ungraded", "")
    check("train thread:1 ; forward:eval:ungraded", "exclude:validation")


def test_a_backward_pass_on_another_thread_decides_nothing() -> None:
    """The training thread is the one of the last training forward."""
    check("train forward:eval:ungraded thread:1 ; backward", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The last step is whole where it has an update; the loop may have ended at any mark after it.
        ("forward call:first update ; close", "last:True:4"),
        ("forward call:first ; close", "last:False:None"),
        ("train eval ; close", "include:validation last:True:0"),
        # With calls of ``step`` it has no end.
        ("step train ; close", "last:False:0"),
    ],
)
def test_the_last_step_is_whole_where_it_has_an_update(text: str, expected: str) -> None:
    """No event ends it."""
    check(text, expected)


@pytest.mark.parametrize(
    ("found", "made", "missed"),
    [
        (4, [5], None),
        (3, [5], 5),
        (6, [5], None),
        (7, [5], 5),
        (8, [5, 2], None),
        (9, [5, 2], 5),
        (9, [], None),
        (0, [], None),
    ],
)
def test_as_many_steps_are_found_as_one_optimizer_makes_or_as_all_of_them_together(
    found: int, made: list[int], missed: int | None
) -> None:
    """One more or less at the ends of a run."""
    program = Program()
    for optimizer, times in enumerate(made):
        program.run(f"update:{optimizer} " * times)
    assert program.detector.steps_missed(found) == missed


def test_updates_in_a_pause_are_no_steps() -> None:
    """A program that trains inside a pause has excluded that training: it ends no step, and none is missed."""
    program = Program()
    program.run("train pause:apart")
    assert program.run("; update update*3 resume") == "include:apart"
    assert program.detector.steps_missed(1) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The updates of one optimizer count the steps as long as each step has one of them, and no other.
        ("; train train train", "count:1"),
        ("train train ; update forward", "count:None"),
        ("train update forward ; backward update forward", "count:1"),
        # Calls of ``step`` end steps from the first one on: updates count none, and hooks of optimizers have no use.
        ("train train ; step step", "StepsAreManual count:None"),
        # Then backward passes matter in validation only, which one of them may end.
        ("train step ; eval training", "backward:on backward:off"),
        ("train step ; forward:eval backward", "backward:on backward:off"),
        ("train ; eval training", ""),
    ],
)
def test_hooks_report_no_more_than_the_steps_need(text: str, expected: str) -> None:
    """Each change is a decision of its own, beside those about the steps."""
    program = Program()
    program.run(text)
    assert program.hook_changes == expected.split()


def test_each_decision_is_carried_out_by_one_object() -> None:
    """By the steps or by the hooks."""
    steps, hooks = set(training_steps.ACTIONS), set(training_hooks.ACTIONS)
    assert not steps & hooks
    assert steps | hooks == set(get_args(events.Decision))
