"""The blocks that belong to no step, while they are open, and the excluded time of the open step."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

from ..capture.marks.codes import PAUSE, UNPAUSE
from .events import Exclude, Include
from .observers import StageTimes
from .step_cost import StepCost
from .step_listeners import StepListeners
from .step_recording import StepRecording


class Exclusions:
    """Record nothing in validation, saving and pauses, which may lie one inside the other, and count their time.

    The times are counted in ``counts``; the recording, the listeners and the account leave them out of the open step.
    """

    def __init__(self, counts: StageTimes, recording: StepRecording, listeners: StepListeners, cost: StepCost) -> None:
        self._counts = counts
        self._recording = recording
        self._listeners = listeners
        self._cost = cost
        self.step_ns = 0
        """The excluded time of the open step; set to 0 where a step begins."""
        self.depth = 0
        """The open blocks, one inside the other: at 0 time belongs to the step."""
        self._begins_ns: list[int] = []
        """The begins of those that the program, or a probe, has named."""
        self._validation_ns = 0
        """The begin of the validation that was recognised, without the blocks inside it."""
        self._since_ns = 0
        """The begin of the outermost block, or of the step where that began later."""
        self._units: dict[str, float] = {}
        """The samples, tokens and frames that were logged in the innermost block that has a name."""

    def open(self, decision: Exclude) -> None:
        """Open a block, and record nothing from now on."""
        is_outermost = self.depth == 0
        self.depth += 1
        now_ns = self._recording.mark(PAUSE) if is_outermost else self._recording.clock.now()
        if decision.recognised:
            self._validation_ns = now_ns
        else:
            self._begins_ns.append(now_ns)
        if is_outermost:
            self._since_ns = now_ns
            self._attach(False)

    def close(self, decision: Include, steps: int) -> None:
        """Close the innermost block, after so many steps, and count it; record again after the outermost one."""
        is_outermost = self.depth == 1
        if is_outermost:
            self._attach(True)
        self.depth -= 1
        now_ns = self._recording.mark(UNPAUSE) if is_outermost else self._recording.clock.now()
        if is_outermost:
            self.step_ns += now_ns - self._since_ns
        if decision.recognised:
            ns = now_ns - self._validation_ns
        else:
            ns = now_ns - self._begins_ns.pop()
            self._validation_ns += 0 if decision.name is None else ns
        if decision.name is not None:
            units, self._units = self._units, {}
            self._counts.add(decision.name, ns, steps, units)

    def choose(self, name: str) -> None:
        """Note that the program names this stage as a part of its work."""
        self._counts.chosen.add(name)

    def log(self, name: str, value: Any) -> None:
        """Add a unit of work to the open block. Raises ``TypeError`` or ``ValueError`` where it is no number."""
        self._units[name] = self._units.get(name, 0.0) + float(value)

    def split(self, now_ns: int) -> None:
        """Count an open block up to now in the step that ends; the rest of it lies in the next one."""
        if self.depth:
            self.step_ns += now_ns - self._since_ns
            self._since_ns = now_ns

    def _attach(self, on: bool) -> None:
        """Attach or detach the probes of the open step, if it is recorded."""
        now_ns = perf_counter_ns()
        self._listeners.pause(not on)
        if on:
            self._listeners.subtract(self._cost.resume(now_ns))
        else:
            self._cost.pause(now_ns)
        if self._recording.open is not None:
            self._recording.probes.switch(on)
