"""Programs as lines of words, one for each event, and the decisions on them in words.

``train`` is a whole iteration. What comes before a semicolon is the program's past, of which no decision is looked at.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from autoprof.session import events
from autoprof.session.repeated_steps import RepeatedSteps
from autoprof.session.step_detector import StepDetector

TRAIN = "forward backward update"
HOOK_CHANGES = events.CountByUpdates, events.StepsAreManual, events.ReportBackward
"""Decisions that change no step, only what hooks report from then on."""


class Loader:
    """A loader, which can be referred to weakly."""


class Program:
    """Events of a program with one thread, or with two, and the decisions that followed."""

    def __init__(self, **options: Any) -> None:
        self.detector = StepDetector(**options)
        self.outcomes: list[str] = []
        self.hook_changes: list[str] = []
        self.loaders: dict[str, Loader] = {}
        self.calls: dict[str, int] = {}
        self.position, self.thread = 0, 0

    def run(self, text: str) -> str:
        """Run a line of words, and return the decisions after the semicolon."""
        past, _, present = text.rpartition(";")
        for word in past.split():
            self._run_word(word)
        self.outcomes.clear()
        self.hook_changes.clear()
        for word in present.split():
            self._run_word(word)
        return " ".join(self.outcomes)

    def _run_word(self, word: str) -> None:
        name, *arguments = word.split(":")
        if "*" in name:
            name, times = name.split("*")
            for _ in range(int(times)):
                self._run_word(":".join([name, *arguments]))
        elif name == "train":
            for one in TRAIN.split():
                self._run_word(one)
        else:
            getattr(self, f"_{name}")(*arguments)

    def report(self, event: Any) -> None:
        """Report an event, whose step has these marks."""
        for decision in self._decide(event):
            if isinstance(decision, events.EndStep):
                self.calls, self.position = {}, 0
            if isinstance(decision, HOOK_CHANGES):
                self.hook_changes.append(outcome(decision))
            else:
                self.outcomes.append(outcome(decision))

    @property
    def buffer(self) -> range:
        """The marks of the open step, as ``OpenMarks`` has them."""
        return range(self.position)

    def _decide(self, event: Any) -> Sequence[Any]:
        return self.detector.decide(event, self)

    def calls_since(self, start: int) -> list[str]:
        """Return the modules called since this position, as ``Marks`` does."""
        return [fqn for fqn, at in self.calls.items() if at >= start]

    def _forward(self, *how: str) -> None:
        module, training, graded = 1 + ("part" in how), "eval" not in how, "ungraded" not in how
        inference = "inference" in how
        self.report(events.ForwardBegins(module, module == 1, training, graded, self.thread, inference))

    def _call(self, fqn: str) -> None:
        self.calls[fqn] = self.position
        self.position += 4

    def _backward(self) -> None:
        self.report(events.BackwardBegins(self.thread))

    def _begin(self, optimizer: str = "1") -> None:
        self.report(events.UpdateBegins(int(optimizer)))

    def _end(self, optimizer: str = "1", *how: str) -> None:
        facts = {"owned": "foreign" not in how, "is_last": "last" in how, "in_backward": "inside" in how}
        self.report(events.UpdateEnds(int(optimizer), self.thread, **facts))

    def _update(self, optimizer: str = "1", *how: str) -> None:
        self._begin(optimizer)
        self._end(optimizer, *how)

    def _fetch(self, loader: str = "feeds", *how: str) -> None:
        source = self.loaders.setdefault(loader, Loader())
        self.report(events.Fetch(source, "given" in how, "ungraded" not in how))

    def _eval(self) -> None:
        self.report(events.ModeChanged(False, self.thread))

    def _training(self) -> None:
        self.report(events.ModeChanged(True, self.thread))

    def _step(self) -> None:
        self.report(events.StepCalled())

    def _pause(self, name: str = "pause") -> None:
        self.report(events.PauseBegins(name))

    def _resume(self) -> None:
        self.report(events.PauseEnds())

    def _close(self) -> None:
        self.outcomes += map(outcome, self.detector.end())
        self.outcomes.append(f"last:{self.detector.is_whole}:{self.detector.updated_at}")

    def _thread(self, number: str) -> None:
        self.thread = int(number)


class RepeatingProgram(Program):
    """The same, where steps that repeat are compared and not decided on."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.steps = RepeatedSteps(self.detector, self, nullcontext, self._fail)

    def _fail(self, _where: str) -> None:
        raise

    def _decide(self, event: Any) -> Sequence[Any]:
        return self.steps.decide(event)

    def _close(self) -> None:
        self.steps.catch_up()
        super()._close()


def outcome(decision: Any) -> str:
    """Return a decision in words."""
    if isinstance(decision, events.EndStep):
        return "end" if decision.steps_in_one == 1 else f"end*{decision.steps_in_one}"
    if isinstance(decision, events.Exclude):
        return f"exclude:{decision.name}"
    if isinstance(decision, events.Include):
        return f"include:{decision.name}"
    if isinstance(decision, events.Follow):
        return f"follow:{decision.fqn}"
    if isinstance(decision, events.CountByUpdates):
        return f"count:{decision.optimizer}"
    if isinstance(decision, events.ReportBackward):
        return f"backward:{'on' if decision.on else 'off'}"
    return type(decision).__name__
