"""A step whose events are those of the step before is compared, and the detector does not notice the difference."""

import gc
import random
import weakref
from typing import Any

import pytest
from event_programs import Loader, Program, RepeatingProgram

from autoprof.session import events
from autoprof.session.step_detector import NO_STATE, StepDetector

LEARNT = 70
"""Steps after which a step that repeats is known: the detector remembers 64 updates."""
WORDS = [
    "forward",
    "forward:eval",
    "forward:ungraded",
    "forward:eval:ungraded",
    "forward:part",
    "backward",
    "update",
    "update:2",
    "begin",
    "end",
    "begin:2",
    "end:2",
    "fetch",
    "fetch:other",
    "fetch:checks:ungraded",
    "fetch:given:given",
    "eval",
    "training",
    "step",
    "pause",
    "resume",
    "call:first",
    "call:second",
    "thread:1",
    "thread:0",
    "end:1:last",
    "end:1:inside",
]
STEPS = (
    "train",
    "fetch train",
    "call:first train",
    "forward backward forward backward update",
    "forward backward update update:2",
    "forward:eval:ungraded forward backward update",
    "begin forward backward end:1:last",
    "forward update:2 forward update",
    "train pause resume",
    "train eval forward:eval:ungraded training",
    "forward backward call:second backward update",
    "backward call:first update",
    "train step",
)


def decided(program: RepeatingProgram, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the list of the events that the detector receives from now on."""
    received, decide = list[Any](), program.detector.decide

    def note(event: Any, marks: Any) -> Any:
        received.append(event)
        return decide(event, marks)

    monkeypatch.setattr(program.detector, "decide", note)
    return received


@pytest.mark.parametrize("seed", range(120))
def test_decisions_are_those_of_the_detector(seed: int) -> None:
    """Of a program whose steps repeat, change, and are interrupted anywhere by other events."""
    chance = random.Random(seed)
    options: dict[str, Any] = {"auto": chance.random() < 0.8, "optimizers": chance.choice((0, 0, 1, 2))}
    alone, compared = Program(**options), RepeatingProgram(**options)
    open_pauses = 0
    for _ in range(6):
        words = " ".join([chance.choice(STEPS)] * chance.choice((2, 20, LEARNT, 100))).split()
        for _ in range(chance.choice((0, 0, 1, 3))):
            words.insert(chance.randrange(len(words)), chance.choice(WORDS))
        for word in words:
            open_pauses += {"pause": 1, "resume": -1}.get(word, 0)
            if open_pauses < 0:
                open_pauses = 0
                continue
            assert compared.run(word) == alone.run(word), word
            assert compared.hook_changes == alone.hook_changes
    compared.steps.catch_up()
    for field in set(vars(alone.detector)) - NO_STATE:
        assert shown(compared.detector, field) == shown(alone.detector, field), field
    assert compared.detector.updates == alone.detector.updates
    assert compared.run("close") == alone.run("close")


def shown(detector: StepDetector, field: str) -> Any:
    """Return a field in a form that two detectors share: of the loaders, which differ, only the uses."""
    value = getattr(detector, field)
    if field in ("_loaders", "_last", "_sources"):
        return list(value.values()) if field == "_loaders" else bool(value)
    if field == "_validation":
        return value.value()[:2]
    return value.state() if field == "_cycle" else value


@pytest.mark.parametrize(
    "step", ["train", "fetch train", "forward backward update update:2", "begin forward end:1:last"]
)
def test_the_detector_receives_no_event_of_a_step_that_repeats(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the step is known; the first other event has it receive the rest of the step before."""
    program = RepeatingProgram()
    program.run(f"{step} " * LEARNT)
    received = decided(program, monkeypatch)
    program.run(f"{step} " * 10)
    assert received == []
    program.run(f"{step} training")
    assert isinstance(received[-1], events.ModeChanged)
    assert len(received) <= len(step.replace("train", "1 2 3 4").split()) + 2


def test_the_steps_of_one_optimizer_repeat_after_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short run is one of them: its steps cost as little as those of a long one."""
    program = RepeatingProgram()
    program.run("train " * 7)
    received = decided(program, monkeypatch)
    program.run("train " * 3)
    assert received == []


def test_a_step_that_was_known_is_known_again_after_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation in between costs the comparison of one step."""
    program = RepeatingProgram()
    program.run("train " * LEARNT + "eval forward:eval:ungraded training train train")
    received = decided(program, monkeypatch)
    program.run("train train")
    assert received == []


def test_a_step_that_needs_the_calls_of_modules_is_always_decided_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its events do not show which modules it calls."""
    program = RepeatingProgram()
    program.run("call:first update " * LEARNT)
    received = decided(program, monkeypatch)
    assert program.run("call:second update") == "follow:second"
    assert received


def test_an_event_of_another_thread_wakes_no_detector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing changes at it: the training thread may be in the middle of a comparison."""
    program = RepeatingProgram()
    program.run("train " * LEARNT)
    received = decided(program, monkeypatch)
    assert program.run("forward thread:1 forward:eval thread:0 backward update forward") == "end end"
    assert received == []


def test_no_loader_is_kept_alive() -> None:
    """It is known by a weak reference, and another one in its place is another event."""
    program = RepeatingProgram()
    program.run("fetch train " * LEARNT)
    loader = weakref.ref(program.loaders.pop("feeds"))
    program.run("training")
    gc.collect()
    assert loader() is None
    program.loaders["feeds"] = Loader()
    program.run("fetch train " * 3)
    assert program.run("fetch") == "end"
