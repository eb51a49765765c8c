"""Record the shapes of a module's inputs and outputs, once for each different set: ``detail: shapes``."""

from __future__ import annotations

import inspect
from time import thread_time_ns
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..._process.replace import skip_frames
from ...frame import ShapeChange
from ..recorder import Recorder
from .call_sites import CallEntry
from .entry_probe import EntryProbe
from .tensors import named_shapes, shapes_in

if TYPE_CHECKING:
    from ..._targets import Target

_compiling = torch.compiler.is_dynamo_compiling
_task = torch._C._current_graph_task_id


class ShapeProbe(EntryProbe):
    """A separate entry of the targets with ``detail: shapes``; the marks of other targets stay as cheap.

    A call costs a look at the shapes of its tensors; their names are found only when the shapes have changed. A
    recomputed forward has the shapes of the first one and is skipped. The cost is part of the reported overhead.
    """

    where = "shape hooks"

    def __init__(self, recorder: Recorder, target: Target) -> None:
        super().__init__(recorder, target.module)
        self._name, self._fqn = target.name, target.fqn
        self._entries = [CallEntry(self, None, ShapeProbe.note)]
        self._last: tuple[Any, ...] | None = None
        self._seen: set[tuple[Any, ...]] = set()

    def note(self, module: nn.Module, args: Any, kwargs: Any, output: Any, _call: Any) -> None:
        """Record the shapes of a call, if they differ from those of the call before."""
        if _compiling():
            return
        if output is None:  # the call raised
            return
        began_ns = thread_time_ns()
        try:
            shapes = (shapes_in(args), shapes_in(kwargs) if kwargs else (), shapes_in(output))
            if shapes != self._last and _task() == -1:
                self._last = shapes
                if shapes not in self._seen:
                    self._change(module, args, kwargs, output, shapes)
            self.recorder.detail_ns += thread_time_ns() - began_ns
        except Exception:
            self.fail(module)

    def _change(self, module: nn.Module, args: Any, kwargs: Any, output: Any, shapes: tuple[Any, ...]) -> None:
        # Sets of shapes recorded for one module: new lengths in each step would otherwise fill the summary.
        max_sets = 16
        if len(self._seen) >= max_sets:
            self.recorder.count_untimed(f"sets of shapes beyond {max_sets} of a module")
            return
        self._seen.add(shapes)
        inputs = named_shapes(_arguments(module, args, kwargs))
        returned = named_shapes({"": output})
        self.recorder.shapes.append(ShapeChange(self._name, self._fqn, inputs, returned))


def _arguments(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by their names in ``forward``; by their positions where it has no signature."""
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {**{str(at): value for at, value in enumerate(args)}, **kwargs}
    return dict(bound.arguments)


skip_frames(ShapeProbe.note, callees=True)  # dynamo would compile it beside the graph of a compiled model
