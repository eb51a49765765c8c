"""The types of the extension in C that annotations name. Its C files describe the others, from ``native.h`` on."""

from typing import Any, final

def configure(**functions: Any) -> None:
    """Set the type of tensors and the functions of torch that hooks call. To be called once, before hooks are made."""

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

    def __len__(self) -> int:
        """Return twice the number of marks."""
    def __getitem__(self, at: int) -> Any:
        """Return a code (even index) or a reading (odd index)."""
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
class NodeMarks:
    """The autograd nodes of the open step that mark a backward pass, by their numbers: at most one prehook on each.

    A node that is mistaken for a new one gets a second prehook, which repeats the first. The context's fallback is
    called with the mark, whose ``serial`` is its step's and whose ``code`` the node marks, and the gradients. Where it
    returns True it has begun a pass, and the mark is tried in C again.
    """

    def __contains__(self, key: int) -> bool: ...
    def track_input(self, key: int, node: Any, ordinal: int, /) -> None:
        """Have the node of an input mark the end of a call's backward, and of all later calls'. The first decides."""
    def track_output(self, key: int, node: Any, ordinal: int, /) -> None:
        """Have the node of an output mark the begin of a call's backward, and of the calls around it.

        A call that returns its input has no backward.
        """
    def clear(self) -> None:
        """Forget the nodes: a new step begins."""
