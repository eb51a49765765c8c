"""A loader whose fetches are ``data`` spans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import wrapt

from ..recorder import ENTER, LEAVE, Recorder

if TYPE_CHECKING:
    _Proxy = wrapt.ObjectProxy[Any]
else:
    _Proxy = wrapt.ObjectProxy


class TimedLoader(_Proxy):
    """The loader itself in every way (length, attributes, ``isinstance``), but for an iterator that times each fetch.

    Only the wait that the training thread is exposed to counts: with worker processes, what they prepared ahead
    costs nothing here.
    """

    def __init__(self, loader: Any, recorder: Recorder, code: int, before_fetch: Callable[[], None]) -> None:
        super().__init__(loader)
        self._self_recorder = recorder
        self._self_code = code
        self._self_before_fetch = before_fetch

    def __new__(cls, loader: Any, *_rest: Any) -> TimedLoader:
        """Make a ``TimedStream`` of what is an iterator itself."""
        made: TimedLoader = super().__new__(TimedStream if hasattr(type(loader), "__next__") else cls)
        return made

    def __iter__(self) -> TimedIterator:
        return TimedIterator(self.__wrapped__, self._self_recorder, self._self_code, self._self_before_fetch)


class TimedStream(TimedLoader):
    """An iterator given as a loader: ``next`` works on it as before."""

    def __next__(self) -> Any:
        return next(iter(self))


class TimedIterator:
    """Iterate, each fetch a span; starting the loader (its worker processes) belongs to the first fetch."""

    def __init__(self, iterable: Any, recorder: Recorder, code: int, before_fetch: Callable[[], None]) -> None:
        self._iterable = iterable
        self._iterator: Iterator[Any] | None = None
        self._recorder = recorder
        self._code = code
        self._before_fetch = before_fetch

    def __iter__(self) -> TimedIterator:
        return self

    def __next__(self) -> Any:
        self._before_fetch()
        recorder, code = self._recorder, self._code
        if recorder.resting and self._iterator is not None:
            return next(self._iterator)
        recorder.mark(code | ENTER)
        try:
            if self._iterator is None:
                self._iterator = iter(self._iterable)
            return next(self._iterator)
        finally:
            recorder.mark(code | LEAVE)
