"""Mark where ``torch.utils.checkpoint`` runs a function again, of any kind, imported in any way.

Hooks of modules see a recomputation only where a target is called in it. So the places of ``torch.utils.checkpoint``
that every checkpoint passes are replaced while a session records. In the forward a ``CHECKPOINT`` mark says which call
contains the checkpoint; in the backward a ``RECOMPUTE`` mark with the same ordinal begins the recomputation.

- Without reentrant autograd, the context managers ``_checkpoint_hook`` (around the forward) and ``_recomputation_hook``
  (around the recomputation) have these names in torch 2.4 to 2.15.
- With it, ``CheckpointFunction.backward`` runs the function, and then a backward pass that is no recomputation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any, Final

import torch
import torch.utils.checkpoint as torch_checkpoint

from ...base.frame import Phase
from ...base.process.replace import MISSING, Attribute, CallProbe, Replacement, skip_frames
from .. import recorder as recorders
from ..marks.codes import CHECKPOINT, LEAVE, MAX_STEPS_BACK, RECOMPUTE, STEP_STRIDE
from ..recorder import Recorder
from .backward import NO_PASS, BackwardPasses

_CALLS: Final = "_autoprof_calls"
"""The attribute of torch's object of one checkpointed call that holds its ordinals."""

_graph_task = torch._C._current_graph_task_id


def is_marking(recorder: Recorder) -> bool:
    """Return whether a checkpointed call belongs to the open step: it is sampled, and no FLOPs are being counted."""
    return not recorder.suspended and recorders.active is not None and not torch.compiler.is_dynamo_compiling()


class CheckpointMarks:
    """Mark the checkpointed calls of one session, and their recomputations: a ``Listener`` of these. Never raises."""

    def __init__(self, recorder: Recorder, passes: BackwardPasses, *, follows_backward: bool) -> None:
        self._recorder = recorder
        self._passes = passes
        self._follows_backward = follows_backward
        # The name of a recomputation that no target contains.
        self._code = recorder.label("(recompute)", None, Phase.RECOMPUTE)

    def remember(self, call: Any) -> None:
        """Mark a checkpointed call in the forward; ``call`` is torch's object of it, which keeps the ordinal."""
        recorder = self._recorder
        try:
            if not is_marking(recorder) or not (get_ident() == recorder.thread or recorder.buffer.multithreaded):
                return
            ordinal = recorder.buffer.next_ordinal()
            vars(call).setdefault(_CALLS, {})[recorder.number] = recorder.serial, ordinal
            recorder.mark_value(ordinal | self._code | CHECKPOINT, 0)
        except Exception:
            recorder.handle_failure("checkpoints")

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        """Mark that a checkpointed call, the only one of ``args``, is computed again."""
        recorder, passes = self._recorder, self._passes
        try:
            if not is_marking(recorder):
                return False
            thread, task = get_ident(), _graph_task()
            known = getattr(args[0], _CALLS, {}).get(recorder.number)
            if known is None and thread != recorder.thread and task != recorder.buffer.running:
                return False  # another thread's training
            if self._follows_backward and task not in (NO_PASS, recorder.buffer.running):
                passes.begin(task)
            code = self._code | RECOMPUTE
            if known is not None:
                serial, ordinal = known
                code += ordinal + max(serial - recorder.serial, -MAX_STEPS_BACK) * STEP_STRIDE
            self._append(code, thread)
        except Exception:
            recorder.handle_failure("checkpoints")
            return False
        return True

    def leave(self) -> None:
        """Mark the end of the recomputation that began last on this thread."""
        try:
            if not self._recorder.suspended:
                self._append(self._code | LEAVE, get_ident())
        except Exception:
            self._recorder.handle_failure("checkpoints")

    def _append(self, code: int, thread: int) -> None:
        # Autograd makes the device and stream current.
        self._passes.append(code, self._recorder.clock.reader(None)(), thread)


def _enter(listeners: list[CheckpointMarks], function: Any, call: Any) -> list[CheckpointMarks]:
    return [listener for listener in listeners[:] if listener.enter(function, (call,))]


def _leave(entered: list[CheckpointMarks]) -> None:
    while entered:
        entered.pop().leave()


def _remembering(original: Any, listeners: list[CheckpointMarks]) -> Any:
    """Return a function in place of one that begins a checkpointed forward; it remembers the calls."""
    function = getattr(original, "__func__", original)

    @functools.wraps(function, updated=())
    def remembering(*args: Any, **kwargs: Any) -> Any:
        for listener in listeners[:]:
            listener.remember(args[0] if args else None)
        return function(*args, **kwargs)

    skip_frames(remembering)
    return remembering if function is original else staticmethod(remembering)


def _recomputing_hook(original: Any, listeners: list[CheckpointMarks]) -> Any:
    """Return a context manager around torch's own around a recomputation, which is timed."""

    @functools.wraps(original, updated=())
    @contextmanager
    def hook(reference: Any, *rest: Any) -> Iterator[None]:
        entered = _enter(listeners, original, reference())
        try:
            with original(reference, *rest):
                yield
        finally:
            _leave(entered)

    return hook


def _recomputing_backward(original: Any, listeners: list[CheckpointMarks]) -> Any:
    """Return the backward of torch's reentrant checkpoint, which has the function in it timed."""
    function = original.__func__

    @functools.wraps(function)
    def backward(ctx: Any, *gradients: Any) -> Any:
        run_function = getattr(ctx, "run_function", None)
        if not listeners or run_function is None:
            return function(ctx, *gradients)

        def timed(*args: Any, **kwargs: Any) -> Any:
            entered = _enter(listeners, run_function, ctx)
            try:
                return run_function(*args, **kwargs)
            finally:
                _leave(entered)

        skip_frames(timed)
        ctx.run_function = timed
        try:
            return function(ctx, *gradients)
        finally:
            ctx.run_function = run_function

    skip_frames(backward)
    return staticmethod(backward)


def _find_replacements() -> Iterator[Replacement]:
    """Yield the replacements of the places that a checkpoint passes, which share one list of listeners."""
    listeners: list[CheckpointMarks] = []
    places: tuple[tuple[Any, str, Callable[[Any, list[Any]], Any]], ...] = (
        (torch_checkpoint, "_checkpoint_hook", _remembering),
        (torch_checkpoint, "_recomputation_hook", _recomputing_hook),
        (torch_checkpoint.CheckpointFunction, "forward", _remembering),
        (torch_checkpoint.CheckpointFunction, "backward", _recomputing_backward),
    )
    for owner, name, make in places:
        place = Attribute(owner, name)
        if place.get() is not MISSING:
            yield Replacement(place, make, listeners=listeners)


_REPLACEMENTS: Final = tuple(_find_replacements())
SEES_CHECKPOINTS: Final = len(_REPLACEMENTS) == 4
"""Whether this torch has all the places that a checkpoint passes."""


class CheckpointProbe(CallProbe):
    """Have checkpointed calls and their recomputations reported while the probe is attached."""

    def __init__(self, marks: CheckpointMarks) -> None:
        skip_frames(marks.remember, callees=True)
        super().__init__((replacement, marks) for replacement in _REPLACEMENTS)
