"""Profiler ranges around recomputations by ``torch.utils.checkpoint``, named after the modules that contain them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.utils.checkpoint

_span = torch._C._profiler._RecordFunctionFast
_checkpoints: Any = torch.utils.checkpoint


def _in_range(function: Any, name: str) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        with _span(name):
            return function(*args, **kwargs)

    return run


@contextmanager
def checkpoint_ranges(around: Callable[[], str]) -> Iterator[None]:
    """Put a range around each recomputation; ``around`` returns its name, and is called in the forward."""
    names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
    checkpoint_hook, recomputation_hook = _checkpoints._checkpoint_hook, _checkpoints._recomputation_hook
    function = _checkpoints.CheckpointFunction
    forward, backward = function.forward, function.backward

    class Remembering(checkpoint_hook):  # type: ignore[misc, valid-type]
        def __init__(self, frame: Any) -> None:
            super().__init__(frame)
            names[frame] = around()

    class Recomputing(recomputation_hook):  # type: ignore[misc, valid-type]
        def __init__(self, frame: Any, *more: Any) -> None:
            super().__init__(frame, *more)
            self._frame = frame

        def __enter__(self) -> Any:
            # All that goes when checkpointing is switched off: torch's work on hooks, random state, autocast as well.
            self._range = _span(names.get(self._frame(), ""))
            self._range.__enter__()
            return super().__enter__()

        def __exit__(self, *error: Any) -> Any:
            try:
                return super().__exit__(*error)
            finally:
                self._range.__exit__(None, None, None)

    def remember(ctx: Any, *args: Any) -> Any:
        names[ctx] = around()
        return forward(ctx, *args)

    def recompute(ctx: Any, *gradients: Any) -> Any:
        ctx.run_function = _in_range(ctx.run_function, names.get(ctx, ""))
        return backward(ctx, *gradients)

    _checkpoints._checkpoint_hook, _checkpoints._recomputation_hook = Remembering, Recomputing
    function.forward, function.backward = staticmethod(remember), staticmethod(recompute)
    try:
        yield
    finally:
        _checkpoints._checkpoint_hook, _checkpoints._recomputation_hook = checkpoint_hook, recomputation_hook
        function.forward, function.backward = staticmethod(forward), staticmethod(backward)
