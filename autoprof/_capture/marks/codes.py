"""What marks are: a code says which, and whose.

A code is an integer: kind (4 bits), index of the name (20 bits) and, where backward has to find the call again, the
call's ordinal above them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ...frame import Phase

KIND_BITS: Final = 4
INDEX_BITS: Final = 20
ORDINAL_SHIFT: Final = KIND_BITS + INDEX_BITS
KIND_MASK: Final = (1 << KIND_BITS) - 1
INDEX_MASK: Final = (1 << INDEX_BITS) - 1
ORDINAL: Final = 1 << ORDINAL_SHIFT
STEP: Final = ORDINAL << 28
"""How far apart the ordinals of two steps lie: a code that refers to an earlier step's call is that much lower."""

ENTER: Final = 0
"""A span begins."""
RECOMPUTE: Final = 1
"""A module's forward begins inside a backward pass."""
RESUME: Final = 2
"""A suspended call (generator, coroutine) goes on: a span, but no further call."""
LEAVE: Final = 3
"""A span ends."""
START: Final = 4
"""The node that made a call's output starts: that call's backward begins, unless it runs already."""
END: Final = 5
"""The node that made a call's input starts: the backward of that call, and of all later calls, is over."""
PASS: Final = 6
"""The node of an output that was there before the call: the call passes it through, its backward takes no time."""
GRAPH_BEGIN: Final = 7
"""A backward pass reaches the first hooked node."""
GRAPH_END: Final = 8
"""A backward pass is over."""
LOGGED: Final = 9
"""A duration measured elsewhere; the reading is the duration."""
MEMORY: Final = 10
"""Bytes at the last mark of this thread; the reading is the bytes. Of an allocator three follow one another: what is
allocated, the running peak of that, what is reserved."""
PAUSE: Final = 11
UNPAUSE: Final = 12
THREAD: Final = 13
"""The next mark is not the training thread's; the reading is the thread's identifier."""

VALUES: Final = frozenset({LOGGED, MEMORY, THREAD})
"""Kinds whose reading is a value, not a time."""

MARKS: Final = 1_000_000
"""Marks kept of one step. What a longer step makes beyond them is counted as dropped."""
FULL: Final = 2 * MARKS
FAR: Final = 1024
"""Steps back beyond which a code says only that: what a graph of so long ago means is not known any more."""
UNTIMED_LEAF: Final = "backward of calls that return a leaf"
"""Why a call has no backward span although a gradient may reach its output: no node made that output."""
UNTIMED_HIDDEN: Final = "backward of calls whose output was not searched to its end"
"""Why a call may have no backward span: too much lies around whatever tensors its output holds."""


class Label(NamedTuple):
    """What a code's index stands for."""

    name: str
    fqn: str | None
    phase: Phase
    phases: frozenset[Phase]
