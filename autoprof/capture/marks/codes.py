"""Codes of marks: the kind of a mark, the name it belongs to, and the call.

A code is an integer: kind (4 bits), index of the label (20 bits) and, for calls whose backward is timed, the call's
ordinal in the bits above. ``native.h`` repeats the numbers that the extension in C uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ...base.frame import Phase

KIND_BITS: Final = 4
ORDINAL_SHIFT: Final = 24
KIND_MASK: Final = (1 << KIND_BITS) - 1
INDEX_MASK: Final = (1 << ORDINAL_SHIFT - KIND_BITS) - 1
ORDINAL_STRIDE: Final = 1 << ORDINAL_SHIFT
"""Distance between the ordinals of two calls."""
STEP_STRIDE: Final = ORDINAL_STRIDE << 28
"""Distance between the ordinals of two steps: a code that refers to a call of an earlier step is lower by that much."""

ENTER: Final = 0
"""A span begins."""
RECOMPUTE: Final = 1
"""A module's forward, or that of a checkpointed call, begins inside a backward pass."""
RESUME: Final = 2
"""A suspended generator or coroutine continues: a further span of the same call."""
LEAVE: Final = 3
"""A span ends."""
BACKWARD_START: Final = 4
"""The node that made a call's output starts: the backward of that call begins, unless it has begun."""
BACKWARD_END: Final = 5
"""The node that made a call's input starts: the backward of that call, and of all later calls, is over."""
PART: Final = 6
"""In a graph of ``torch.compile`` the kernels of a part begin, or, by the last part's label, the graph ends."""
GRAPH_BEGIN: Final = 7
"""A backward pass reaches the first hooked node."""
GRAPH_END: Final = 8
"""A backward pass is over."""
LOGGED: Final = 9
"""A duration measured elsewhere; the reading is the duration."""
MEMORY: Final = 10
"""Bytes at the last mark of this thread; the reading is the bytes. An allocator has two such marks:
allocated, then its peak so far."""
PAUSE: Final = 11
UNPAUSE: Final = 12
THREAD: Final = 13
"""The next mark is of a thread other than the training thread; the reading is the thread's identifier."""
CHECKPOINT: Final = 14
"""A checkpointed call begins in a forward: its RECOMPUTE has the same ordinal. The reading is 0: it is no span."""

VALUE_KINDS: Final = frozenset({LOGGED, MEMORY, THREAD, CHECKPOINT})
"""Kinds whose reading is a value, not a time."""

MAX_MARKS: Final = 1_000_000
"""Marks kept of one step; further ones are counted as dropped."""
MAX_STEPS_BACK: Final = 1024
"""Age in steps from which a graph counts as this old: the codes of its calls are not kept any longer."""


class Label(NamedTuple):
    """The name, module and phases that the index in a code stands for."""

    name: str
    fqn: str | None
    phase: Phase
    phases: frozenset[Phase]
    shown: bool = True
    """Whether its calls become spans; time of hidden calls is counted by phase only."""
    inside: Mapping[str | None, PartPath] | None = None
    """Of a ``PART``: what its kernels belong to, by the fqn of the module that runs the graph, None for none."""
    earlier: int = 0
    """Of a module inside a graph: its earlier calls in the graph."""


class PartPath(NamedTuple):
    """The labels inside a compiled module that a part of its graph belongs to, from the outermost to the innermost."""

    labels: tuple[Label, ...]
    rest: Label
    """The label of the module's time outside its graphs' kernels; where it is the path itself, the graph ends."""
