"""Fetches of batches as ``data`` spans: of loaders given to ``session.loader``, and of torch's own by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol

import wrapt
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from ..marks import ENTER, LEAVE, RESUME
from ..recorder import Recorder
from .handle import Handle
from .patch import Attribute, Patch, PatchProbe

if TYPE_CHECKING:
    _Proxy = wrapt.ObjectProxy[Any]
else:
    _Proxy = wrapt.ObjectProxy


class Course(Protocol):
    """What fetches may ask of the course of the run."""

    @property
    def is_excluded(self) -> bool:
        """Whether what happens now is charged to no step."""

    @property
    def listens(self) -> bool:
        """Whether anybody asks for fetches; in a step left alone nobody does."""

    def fetches(self, source: Any, *, explicit: bool) -> None:
        """Take word that a batch is asked for."""


class Fetches:
    """The fetches of one session. A fetch inside another one (a wrapped ``DataLoader``) is part of it."""

    def __init__(self, recorder: Recorder, code: int, course: Course) -> None:
        self._recorder = recorder
        self._code = code
        self._course = course
        self._inside = -1
        """The serial of the step in which a fetch is under way: what a Ctrl-C leaves says nothing of later ones."""
        self._workers = self._asked = self._unready = 0

    def begin(self, source: Any, *, explicit: bool, kind: int = ENTER) -> bool:
        """Begin a fetch from this source; say whether its end is to be told. Never raises."""
        if not self._course.listens:
            return False
        try:
            return self._begin(source, explicit, kind)
        except Exception:  # whatever a loader's attributes raise
            self._recorder.handle_failure("loaders")
            return False

    def _begin(self, source: Any, explicit: bool, kind: int) -> bool:
        recorder = self._recorder
        trains = get_ident() == recorder.thread
        if trains and self._inside == recorder.serial:
            return False
        if trains or explicit:
            self._course.fetches(getattr(source, "dataset", source), explicit=explicit)
            trains = get_ident() == recorder.thread  # the step may have ended, and this thread have begun the next
        if self._course.is_excluded or not (trains or explicit):
            return False
        if trains:
            self._inside = recorder.serial
        recorder.mark(self._code | kind)
        return True

    def end(self) -> None:
        """End the fetch that began last."""
        if get_ident() == self._recorder.thread:
            self._inside = -1
        self._recorder.mark(self._code | LEAVE)

    # What torch's own loaders say.

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        """Take word that a ``DataLoader`` starts, or that a batch of it is asked for."""
        if not self._course.listens:
            return False
        try:
            given = args[0]
            if get_ident() != self._recorder.thread:
                return False
            if isinstance(given, DataLoader):
                return self.begin(given, explicit=False, kind=RESUME)  # its workers' start belongs to the first fetch
            told = self.begin(_Source(given._dataset), explicit=False)
            if not self._course.is_excluded:
                self._ask(given)
        except Exception:
            self._recorder.handle_failure("loaders")
            return False
        return told

    def leave(self) -> None:
        """Take word that it is over."""
        self.end()

    def _ask(self, iterator: Any) -> None:
        """Count whether a batch was ready, where worker processes prepare them; the first of an epoch cannot be."""
        try:
            tasks, wanted = iterator._task_info, iterator._rcvd_idx
            if not iterator._num_workers or not iterator._num_yielded:
                return
            if iterator._tasks_outstanding <= 0 and wanted not in tasks:
                return  # the epoch is over
            ready = len(tasks.get(wanted, ())) == 2 or not iterator._data_queue.empty()
        except Exception:  # private to torch: one without workers has none of it, a later one may have others
            return
        self._workers = iterator._num_workers
        self._asked += 1
        self._unready += not ready

    def prefetch(self) -> dict[str, int]:
        """Return how many fetches found no batch ready; nothing where no worker process prepared any."""
        if not self._asked:
            return {}
        return {"workers": self._workers, "fetches": self._asked, "unready": self._unready}


class _Source:
    """A dataset in a loader's place."""

    __slots__ = ("dataset",)

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset


NEXT = Patch(Attribute(_BaseDataLoaderIter, "__next__"))
START = Patch(Attribute(DataLoader, "__iter__"))


def probe_loaders(fetches: Fetches, handle: Handle) -> None:
    """See every ``DataLoader`` that the training thread iterates, for as long as the session is open."""
    PatchProbe([(START, fetches), (NEXT, fetches)], handle).attach()


class TimedLoader(_Proxy):
    """The loader itself in every way (length, attributes, ``isinstance``), but for an iterator that times each fetch.

    Only the wait that the training thread is exposed to counts: with worker processes, what they prepared ahead
    costs nothing here.
    """

    def __init__(self, loader: Any, fetches: Fetches) -> None:
        super().__init__(loader)
        self._self_fetches = fetches

    def __new__(cls, loader: Any, *_rest: Any) -> TimedLoader:
        """Make a ``TimedStream`` of what is an iterator itself."""
        made: TimedLoader = super().__new__(TimedStream if hasattr(type(loader), "__next__") else cls)
        return made

    def __iter__(self) -> TimedIterator:
        return TimedIterator(self.__wrapped__, self._self_fetches)


class TimedStream(TimedLoader):
    """An iterator given as a loader: ``next`` works on it as before."""

    def __next__(self) -> Any:
        return next(iter(self))


class TimedIterator:
    """Iterate, each fetch a span; starting the loader (its worker processes) belongs to the first fetch."""

    def __init__(self, iterable: Any, fetches: Fetches) -> None:
        self._iterable = iterable
        self._iterator: Iterator[Any] | None = None
        self._fetches = fetches

    def __iter__(self) -> TimedIterator:
        return self

    def __next__(self) -> Any:
        told = self._fetches.begin(self._iterable, explicit=True)
        try:
            if self._iterator is None:
                self._iterator = iter(self._iterable)
            return next(self._iterator)
        finally:
            if told:
                self._fetches.end()
