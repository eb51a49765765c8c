"""Interface of the extension in C: the reference of all that Python code may use of it.

Hooks made here handle the usual case: a call on the training thread, in a sampled step, while the buffer has room. For
every other case they call the hook in Python, ``fallback``, before they have changed anything. An ``Exception`` inside
a hook is passed to ``on_error``; other exceptions, such as ``KeyboardInterrupt``, go on to the program.
"""

from collections.abc import Callable
from typing import Any, final

from torch import nn

SOURCE_HASH: str
"""Version of this interface; ``native.py`` uses no build of another version."""

def configure(
    *,
    tensor_type: type,
    graph_task_id: Callable[[], int],
    sequence_nr: Callable[[], int],
    tracing_state: Callable[[], Any],
    call_impl: Any,
    global_hooks: tuple[dict[int, Any], ...],
    graph_task_id_at: int,
    sequence_nr_at: int,
) -> None:
    """Set the type of tensors and the functions of torch that hooks call. To be called once, before hooks are made.

    ``graph_task_id`` returns the id of the backward pass on this thread, -1 if none runs; ``sequence_nr`` the number
    that the next autograd node gets; the addresses are those of the same
    functions in C++ (``int()``, ``uint64_t()``), or 0.
    ``tracing_state`` returns None unless torch traces; ``call_impl`` is torch's own ``Module._call_impl``, and
    ``global_hooks`` are torch's tables of hooks for all modules.
    """

@final
class MarkBuffer:
    """The marks of one step: a sequence with two items for each mark, code and reading.

    Readings that fit 64 bits are held as integers, others (device events) as objects.
    """

    @property
    def serial(self) -> int:
        """Number of the open step."""
    running: int
    """Id of the graph task of the backward pass that the last mark belonged to."""
    multithreaded: bool
    """Whether another thread than the training thread made a mark in the step."""
    suspended: bool
    """Whether nothing is appended: the step is unsampled."""
    dropped: int
    """Marks that found no room."""
    idle: bool
    """Whether calls of modules are not marked, and nothing is called for them."""
    skipped: int
    """Marks of module calls on other threads that hooks passed over."""

    def __init__(self, serial: int, limit: int) -> None:
        """Start the step ``serial``. From ``limit`` marks on, hooks call their fallback, and marks are dropped."""
    def __len__(self) -> int:
        """Return twice the number of marks."""
    def __getitem__(self, at: Any) -> Any:
        """Return a code (even index) or a reading (odd index). No slices, no negative indices beyond the length."""
    def extend(self, marks: Any) -> None:
        """Append marks: a tuple of alternating codes and readings."""
    def take(self, serial: int) -> tuple[bytes, bytes | memoryview | list[Any]]:
        """Return the codes and the readings, and start the step ``serial``.

        Integers are returned as 64-bit integers in bytes; readings as a part of a larger block, which lives as long as
        one of its parts, or as a list if one of them is not a 64-bit integer.
        Codes equal to those of the step before are the same object.
        """
    def clear(self) -> None:
        """Remove all marks."""
    def next_ordinal(self) -> int:
        """Return the ordinal of a new call, a multiple of ``ORDINAL_STRIDE``; each step starts from the first one."""

@final
class EventReader:
    """A reading of a device's clock: a free stamp whose event is recorded on this thread's current stream.

    It calls ``read``, which does the same in Python, where no stamp is free, where ``device`` (None: any) is not the
    current one, and while a graph is captured. ``here`` returns the place, device and stream.
    """

    def __init__(
        self,
        read: Callable[[], Any],
        here: Callable[[int | None], tuple[int, Any] | None],
        device: int | None,
        pools: dict[int, list[Any]],
        *,
        record: Callable[[Any, Any], Any],
        streams: dict[tuple[int, Any], Any],
        current_device: Callable[[], int],
        current_stream: Callable[[int], Any],
        is_capturing: Callable[[], bool],
    ) -> None: ...
    def __call__(self) -> Any:
        """Return a stamp."""

@final
class HookContext:
    """The state that the marks of one purpose share. Disabled until ``update``.

    With ``nodes`` and ``gaps`` (both or none), calls of modules track backward: they have the autograd nodes of inputs
    and outputs marked in ``nodes``, and keep calls with a gap before them in ``gaps``. A context of nodes has
    the prehook in Python, ``fallback(mark, gradients)``, and a function for its exceptions.
    """

    def __init__(
        self,
        buffer: MarkBuffer,
        *,
        nodes: NodeMarks = ...,
        gaps: list[tuple[int, int]] = ...,
        fallback: Callable[[Any, Any], None] = ...,
        on_error: Callable[[Any, Any, Exception], None] = ...,
    ) -> None: ...
    def update(self, *, enabled: bool, training_thread: int, read_clock: Callable[[], Any]) -> None:
        """Renew the state that the recorder changes.

        ``enabled``: usual cases are handled in C; ``read_clock`` returns a reading, and ``time.perf_counter_ns`` is
        read without a call of Python.
        """

@final
class NodeMarks:
    """The autograd nodes of the open step that mark a backward pass, by their numbers: at most one prehook on each.

    A node that is mistaken for a new one gets a second prehook, which repeats the first. The context's fallback is
    called with the mark, whose ``serial`` is its step's and whose ``code`` the node marks, and the gradients.
    ``make_carrier`` returns a tensor with a dict as its ``_backward_hooks``.
    """

    def __init__(self, context: HookContext, make_carrier: Callable[[dict[int, Any]], Any]) -> None: ...
    def __len__(self) -> int: ...
    def __contains__(self, key: int) -> bool: ...
    def track_input(self, key: int, node: Any, ordinal: int, /) -> None:
        """Have the node of an input mark the end of a call's backward, and of all later calls'. The first decides."""
    def track_output(self, key: int, node: Any, ordinal: int, /) -> None:
        """Have the node of an output mark the begin of a call's backward, and of the calls around it.

        A call that returns its input has no backward.
        """
    def clear(self) -> None:
        """Forget the nodes: a new step begins."""

@final
class CallEntry:
    """The functions called around the calls of a module, each with the owner first; None for no function.

    ``enter(owner, module, args, kwargs)`` and ``leave(owner, module, args, kwargs, output, call)``: ``call`` is what
    ``enter`` returned, and the output of a call that raised is None. ``context`` handles the usual case.
    """

    def __init__(
        self, owner: Any, enter: Any, leave: Any, context: Any = None, on_error: Any = None, code: int = 0
    ) -> None: ...

@final
class CallSite:
    """The marked calls of one module. A copy or a pickle of it is None."""

    entries: tuple[CallEntry, ...]
    """Outermost first; one that is removed during a call is not left."""
    before: tuple[Callable[[nn.Module], object], ...]
    """The functions called with the module before its entries are looked up."""
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

@final
class CallTable:
    """The modules whose calls are marked, in place of ``Module._compiled_call_impl``: a data descriptor."""

    def __len__(self) -> int: ...
    def site(self, module: nn.Module) -> CallSite:
        """Return the site of a module, a new one where it has none."""
    def find(self, module: nn.Module) -> CallSite | None:
        """Return the site of a module, or None."""
    def alias(self, module: nn.Module, source: CallSite, *, wraps: bool) -> CallSite:
        """Give a module the entries of another one's site: a replica of that module, or a module that wraps it."""
    def drop(self, module: nn.Module) -> None:
        """Remove the site of a module."""

@final
class TimedMethod:
    """A method of a class in place of the one in C, which a look-up on the class still returns.

    A look-up on an object returns ``method`` bound to it, or ``watch(bound, object, name)``: where there are
    ``listeners``, and the attribute ``is_here`` of one of them, called with the object, is true. With ``of_tensor``
    false it is called in each case, as ``watch(bound, None, name)``.
    """

    @property
    def __wrapped__(self) -> Any:
        """The method."""
    def __init__(
        self, method: Any, name: str, of_tensor: bool, listeners: list[Any], watch: Callable[[Any, Any, str], Any]
    ) -> None: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any: ...
