"""Spans of fetches: of loaders given to ``session.loader``, and of every ``DataLoader`` of torch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import TYPE_CHECKING, Any

import wrapt
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from ..base.frame import Phase
from ..base.process.replace import Attribute, CallProbe, Replacement
from ..capture.marks.codes import ENTER, LEAVE, RESUME
from ..capture.recorder import Recorder
from ._base import ProbeContext, ProbeFactory, StepEvents
from ._batches import FetchedBatches, note_indices, take_size
from ._prefetch import Prefetch

if TYPE_CHECKING:
    _Proxy = wrapt.ObjectProxy[Any]
else:
    _Proxy = wrapt.ObjectProxy


def _report_batches(original: Any, listeners: list[LoaderProbe]) -> Any:
    """Return a wrapper of ``__next__`` that calls the listeners around each fetch, and passes them its batch."""

    @functools.wraps(original)
    def wrapper(iterator: Any) -> Any:
        if not listeners:
            return original(iterator)
        entered = [listener for listener in listeners[:] if listener.enter(original, (iterator,))]
        try:
            batch = original(iterator)
            size = take_size(iterator)
            for listener in listeners[:]:
                listener.fetched(iterator, batch, size)
            return batch
        finally:
            for listener in reversed(entered):
                listener.leave()

    return wrapper


def _report_indices(original: Any, _listeners: list[LoaderProbe]) -> Any:
    """Return a wrapper of ``_next_index`` that keeps the number of indices, whether or not a session listens now."""

    @functools.wraps(original)
    def wrapper(iterator: Any) -> Any:
        indices = original(iterator)
        note_indices(iterator, indices)
        return indices

    return wrapper


NEXT = Replacement(Attribute(_BaseDataLoaderIter, "__next__"), _report_batches)
INDICES = Replacement(Attribute(_BaseDataLoaderIter, "_next_index"), _report_indices, listeners=NEXT.listeners)
START = Replacement(Attribute(DataLoader, "__iter__"))


class LoaderProbe(CallProbe):
    """Time the fetches of one session. A fetch inside another one (a wrapped ``DataLoader``) belongs to it."""

    def __init__(self, recorder: Recorder, events: StepEvents, prefetch: Prefetch, batches: FetchedBatches) -> None:
        super().__init__([(START, self), (NEXT, self), (INDICES, self)])
        self._recorder = recorder
        self._code = recorder.label("Data", None, Phase.DATA)
        self._events = events
        self._ended = False
        self._open_in = -1
        """The serial of the step of the open fetch; a Ctrl-C may leave that of an old step here."""
        self._prefetch = prefetch
        self._batches = batches

    def remove(self) -> None:
        """Time no fetch any more: the program keeps the loaders of a session that has ended, and they this probe."""
        super().remove()
        if not self._ended:
            self._ended = True
            del self._events

    def begin(self, iterable: Any) -> bool:
        """Begin a fetch from a loader of ``session.loader``; return whether ``end`` is to be called. Never raises."""
        try:
            return self._begin(getattr(iterable, "dataset", iterable), explicit=True)
        except Exception:  # a loader's attributes may raise anything
            self._recorder.handle_failure("loaders")
            return False

    def _begin(self, dataset: Any, *, explicit: bool = False, kind: int = ENTER) -> bool:
        recorder = self._recorder
        in_training_thread = get_ident() == recorder.thread
        if self._ended or (in_training_thread and self._open_in == recorder.serial):
            return False
        if in_training_thread or explicit:
            self._events.report_fetch(dataset, explicit=explicit)
            in_training_thread = get_ident() == recorder.thread  # this thread may just have begun the next step
        if self._events.is_excluded or not self._events.is_recording or not (in_training_thread or explicit):
            return False
        if in_training_thread:
            self._open_in = recorder.serial
        recorder.mark(self._code | kind)
        return True

    def end(self) -> None:
        if get_ident() == self._recorder.thread:
            self._open_in = -1
        self._recorder.mark(self._code | LEAVE)

    # Calls of torch's own loaders.

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        """Called before a ``DataLoader`` starts, and before each of its fetches."""
        try:
            owner = args[0]
            if get_ident() != self._recorder.thread:
                return False
            if isinstance(owner, DataLoader):
                if owner.num_workers and not owner.persistent_workers and not self._events.is_excluded:
                    self._prefetch.begin_start(owner, self._recorder.clock.now())
                return self._begin(owner.dataset, kind=RESUME)  # its workers' start belongs to the first fetch
            begun = self._begin(owner._dataset)
            if not self._events.is_excluded:
                self._count_ready(owner)
        except Exception:
            self._recorder.handle_failure("loaders")
            return False
        return begun

    def fetched(self, iterator: Any, batch: Any, size: float) -> None:
        """Called with each batch and the number of its indices; counts its samples. Never raises."""
        try:
            if get_ident() == self._recorder.thread and not self._events.is_excluded:
                if self._prefetch.is_starting:
                    self._prefetch.end_start(self._recorder.clock.now())
                self._batches.add(iterator, batch, size, recorded=self._events.is_recording)
        except Exception:  # names private to torch, which other versions may lack, and batches of any class
            return

    leave = end

    def _count_ready(self, iterator: Any) -> None:
        """Count whether a worker process had prepared the batch; the first one of an epoch cannot be ready."""
        try:
            tasks, wanted = iterator._task_info, iterator._rcvd_idx
            if not iterator._num_workers or not iterator._num_yielded:
                return
            if iterator._tasks_outstanding <= 0 and wanted not in tasks:
                return  # the epoch is over
            ready = len(tasks.get(wanted, ())) == 2 or not iterator._data_queue.empty()
        except Exception:  # private to torch: loaders without workers and other versions may lack these
            return
        self._prefetch.add(iterator._num_workers, ready=ready)


class TimedLoader(_Proxy):
    """The loader itself in every way (length, attributes, ``isinstance``), but for an iterator that times each fetch.

    Only the wait of the training thread counts: batches that worker processes prepared ahead cost nothing here.
    """

    def __init__(self, loader: Any, probe: LoaderProbe) -> None:
        super().__init__(loader)
        self._self_probe = probe

    def __new__(cls, loader: Any, *_rest: Any) -> TimedLoader:
        """Make a ``TimedStream`` for a loader that is an iterator itself."""
        made: TimedLoader = super().__new__(TimedStream if hasattr(type(loader), "__next__") else cls)
        return made

    def __iter__(self) -> TimedIterator:
        return TimedIterator(self.__wrapped__, self._self_probe)


class TimedStream(TimedLoader):
    """An iterator given as a loader: ``next`` works on it as before."""

    def __next__(self) -> Any:
        return next(iter(self))


class TimedIterator:
    """Iterate, each fetch a span; starting the loader (its worker processes) belongs to the first fetch."""

    def __init__(self, iterable: Any, probe: LoaderProbe) -> None:
        self._iterable = iterable
        self._iterator: Iterator[Any] | None = None
        self._probe = probe

    def __iter__(self) -> TimedIterator:
        return self

    def __next__(self) -> Any:
        begun = self._probe.begin(self._iterable)
        try:
            if self._iterator is None:
                self._iterator = iter(self._iterable)
            return next(self._iterator)
        finally:
            if begun:
                self._probe.end()


def _make(context: ProbeContext) -> LoaderProbe:
    assert context.events is not None
    return LoaderProbe(context.recorder, context.events, context.prefetch, context.batches)


PROBE = ProbeFactory(_make, reports_events=True)
