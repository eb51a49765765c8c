"""Read the marks of the open step."""

from __future__ import annotations

from .._capture.marks.codes import ENTER, INDEX_MASK, KIND_BITS, KIND_MASK, LEAVE, PAUSE, THREAD, UNPAUSE
from .._capture.recorder import Recorder
from ..frame import Phase
from .events import OutermostModuleCall


class StepMarks:
    """The marks of the open step, as they lie in the recorder's buffer."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __len__(self) -> int:
        return len(self._recorder.buffer)

    def calls_since(self, start: int) -> tuple[OutermostModuleCall, ...]:
        """Return the outermost calls of modules that the training thread made since this position."""
        buffer, labels = self._recorder.buffer, self._recorder.labels
        calls: list[OutermostModuleCall] = []
        inside, paused = -1, False
        for at in range(start, len(buffer), 2):
            code = buffer[at]
            kind = code & KIND_MASK
            if kind in (PAUSE, UNPAUSE):
                paused = kind == PAUSE
            if paused or kind not in (ENTER, LEAVE) or (at and buffer[at - 2] & KIND_MASK == THREAD):
                continue
            if inside < 0 and kind == ENTER and (fqn := labels[code >> KIND_BITS & INDEX_MASK].fqn) is not None:
                calls.append(OutermostModuleCall(at, fqn))
                inside = code & ~KIND_MASK
            elif kind == LEAVE and code & ~KIND_MASK == inside:
                inside = -1
        return tuple(calls)

    def end_of_loop(self, start_ns: int, updated_at: int, excluded_ns: int = 0) -> int | None:
        """Return the position behind the update; None where the step, which began at ``start_ns``, goes on until now.

        No event ends the last step of a loop: it ends with its update if more time has passed since than before it,
        without the excluded time of the step.
        """
        buffer, clock = self._recorder.buffer, self._recorder.clock
        if updated_at + 1 < len(buffer) and self._ends_optimizer(updated_at):
            updated_at += 2
        if not updated_at:
            return None
        updated_ns, now = clock.host_ns(buffer[updated_at - 1]), clock.read()
        since_ns = clock.host_ns(now) - updated_ns - excluded_ns
        clock.release((now,))
        return updated_at if since_ns > updated_ns - start_ns else None

    def _ends_optimizer(self, at: int) -> bool:
        code: int = self._recorder.buffer[at]
        is_leave = code & KIND_MASK == LEAVE
        return is_leave and self._recorder.labels[code >> KIND_BITS & INDEX_MASK].phase is Phase.OPTIMIZER
