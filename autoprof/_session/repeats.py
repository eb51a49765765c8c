"""Have the extension in C end steps that differ from the step before in nothing but their times."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import nn

from .._capture.marks import extension
from .._capture.probes import Placement, native_forward_hook
from .._capture.probes.backward import BackwardPasses
from .._capture.recorder import Recorder
from .._metrics import RootProbe
from .._resolve import MAX_READINGS, RawStep, RepeatedSteps

MAX_EXCESS_NS: Final = 2_000_000
"""A step that is so much longer than the shortest of the last ones that ended in Python ends there too: a full garbage
collection, a compilation or a move to another device may have taken place in it."""
COMPARED_STEPS: Final = 8
"""The number of these steps."""
_PLAIN: Final = (torch.Tensor, nn.Parameter)
"""Classes of which an attribute of torch's runs no code of the user's."""

Hook = Callable[..., None]


class Ended(NamedTuple):
    """The steps that ended in C, and the step that is open now."""

    steps: RepeatedSteps | None
    start_ns: int
    start_unix_ns: int
    saw_forward: bool
    """Whether the open step has begun with a training forward of the model."""


def never() -> bool:
    """Return False: no step ends in C."""
    return False


class Repeats:
    """End steps in C as long as they repeat the step before; without the extension no step ends here.

    A step repeats another one if it has the same marks and the same calls of the model, among them a training forward
    before which no module was called, and no event: nothing is logged, fetched, excluded or validated in it.
    """

    def __init__(
        self, recorder: Recorder, root: RootProbe, passes: BackwardPasses | None, placement: Placement
    ) -> None:
        self._recorder = recorder
        self._root = root
        self._placement = placement
        self._like: RawStep | None = None
        self._lengths: deque[int] = deque(maxlen=COMPARED_STEPS)
        self._start_ns = 0
        self._native: Any = None
        anchor = placement.anchor
        in_c = type(recorder) is Recorder and recorder.native_buffer is not None and root.has_native_matcher
        if in_c and (anchor is None or type(anchor) in _PLAIN):
            marked = () if passes is None else (passes,)
            self._native = extension.Repeats(recorder.native_buffer, root.matcher, root.module, anchor, *marked)
        self.end: Callable[[], bool] = never if self._native is None else self._native.end
        """End the open step if it repeats the one before; return whether it does. Else nothing has changed."""

    def wrap(self, hook: Hook) -> Hook:
        """Return the hook before the model's forward with its usual case in C."""
        return hook if self._native is None else native_forward_hook(self._native, hook)

    def begin(
        self,
        like: RawStep,
        start_unix_ns: int,
        *,
        before: int,
        events: Callable[[], tuple[Any, ...]],
        room: int,
        due_ns: int,
    ) -> None:
        """End the open step, and those after it, as long as they repeat ``like``, which has just ended.

        Its first training forward came after ``before`` marks. ``room`` is the number of steps that may end in C before
        ``due_ns``; ``events`` returns the containers that are empty in a step without an event.
        """
        native, batch, recorder = self._native, like.mark_batch, self._recorder
        if native is None or recorder.read is not perf_counter_ns or not self._placement.is_on_host:
            return
        codes = batch.raw_codes
        if room <= 0 or due_ns <= like.end or not recorder.is_appending or not isinstance(codes, bytes):
            return
        if batch.multithreaded or batch.dropped or batch.detail_ns or not isinstance(batch.raw_readings, bytes):
            return
        self._lengths.append(like.end - like.start)
        calls = self._root.last
        native.begin(
            codes=codes,
            before=before,
            calls=calls.shapes,
            **self._root.passes_counted(),
            events=(*events(), recorder.shapes, recorder.communications),
            per_step=recorder.per_step,
            start_ns=like.end,
            start_unix_ns=start_unix_ns,
            due_ns=due_ns,
            most_ns=min(self._lengths) + MAX_EXCESS_NS,
            limit=min(room, MAX_READINGS // (batch.mark_count + 1)),
        )
        self._like, self._start_ns = like, like.end

    @property
    def are_expected(self) -> bool:
        """Whether the open step may end in C, or steps that did wait to be taken."""
        return self._like is not None

    @property
    def saw_forward(self) -> bool:
        """Whether the open step may end in C, and has reached its first training forward."""
        return self._like is not None and bool(self._native.saw_forward)

    def take(self) -> Ended | None:
        """Return the steps that ended since ``begin``, and end no more until then; None where there was none."""
        taken = None if self._native is None else self._native.take()
        like, self._like = self._like, None
        if taken is None or like is None:
            return None
        count, rows, start_ns, start_unix_ns, saw_forward = taken
        steps = None
        if count:
            numbers = range(like.step + 1, like.step + 1 + count)
            steps = RepeatedSteps(like, numbers, self._start_ns, np.frombuffer(rows, np.int64).reshape(count, -1))
        return Ended(steps, start_ns, start_unix_ns, saw_forward)
