"""A run under observation: ``Session`` is what the user's loop talks to, and undoes everything at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from .._capture.handle import Handle
from .._capture.recorder import Recorder
from .._process.signals import raised_by_handler
from ..devices import Memory
from ..errors import SessionError
from ..probes.loaders import LoaderProbe, TimedLoader
from ..summary import Summary
from . import lifecycle
from .pipeline import Pipeline
from .step_tracker import StepTracker

if TYPE_CHECKING:
    from pathlib import Path

    from .._targets import Target
    from ..sinks import Sink

Loader = TypeVar("Loader")


class Session:
    """What ``autoprof.instrument`` returns. Use it from the training thread; a context manager closes it."""

    def __init__(
        self,
        steps: StepTracker,
        recorder: Recorder,
        pipeline: Pipeline,
        memory: Memory,
        loader_probe: LoaderProbe,
        *,
        enabled: bool = True,
    ) -> None:
        self._tracker = steps
        self._sampling = steps.sampling
        self._work = steps.work
        self._recorder = recorder
        self._pipeline = pipeline
        self._memory = memory
        self._loader_probe = loader_probe
        self._handle = Handle()
        self._enabled = enabled
        self.targets: tuple[Target, ...] = ()
        """The modules that are timed."""
        self._closed = self._ended = not enabled

    def start(self, sinks: Iterable[Sink], handles: Iterable[Handle]) -> None:
        """Attach everything and open the first step. Called once, by ``instrument``."""
        self._pipeline.open(sinks)
        for handle in handles:
            self._handle.add(handle.remove)
        self._tracker.start()

    @property
    def busy(self) -> bool:
        """Whether the session is in the middle of its own work."""
        return self._work.depth > 0

    @property
    def folder(self) -> Path | None:
        """The folder of this run, or None when it writes no files."""
        folder = self._pipeline.folder
        return None if folder is None else folder.path

    @property
    def rank_folder(self) -> Path | None:
        """Where this rank's own files go, or None when it writes no files."""
        folder = self._pipeline.folder
        return None if folder is None else folder.rank_path

    # What a deep capture asks for.

    def follow_steps(self, begins: Callable[[int], object], count: int) -> Callable[[], None]:
        """Have the next steps recorded, and each told of; return what ends that."""
        return self._tracker.follow(begins, count)

    def say(self, note: str) -> None:
        """Keep a note for the reports, and say it once."""
        self._pipeline.say(note)

    # What the user's loop calls.

    def step(self) -> None:
        """End a step. The first call makes the session manual. Raises ``SessionError`` after ``close``."""
        sampling = self._sampling
        if sampling.gap_remaining > 1 and not self._tracker.auto:  # a step left alone: whatever is done here costs
            sampling.gap_remaining -= 1
        elif not self._closed:
            self._tracker.end()
        elif self._enabled:
            raise SessionError("session.step: this session is closed; instrument the model again to go on")

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Charge what happens inside (validation, saving) to no step."""
        with self._tracker.state.exclude("pause"):
            yield

    def loader(self, iterable: Loader) -> Loader:
        """Wrap a loader so that the wait for each batch is a ``data`` span; in all else it stays the loader it was."""
        self._pipeline.metrics.add_loader(iterable)
        wrapped: Any = TimedLoader(iterable, self._loader_probe)
        return wrapped  # type: ignore[no-any-return]

    def log(self, **scalars: Any) -> None:
        """Attach loss, lr, samples, … to the open step: numbers, or tensors of one element, read when resolved.

        A step that is not recorded keeps none.
        """
        raw = self._tracker.raw
        if raw is None or self._closed:
            return
        for name, value in scalars.items():
            try:
                raw.log(name, value)
            except (TypeError, ValueError, RuntimeError) as error:
                self._pipeline.say(f"session.log: {name} is left out ({error}); it must be a number")

    def summary(self) -> Summary:
        """Return the statistics so far (of the whole run after ``close``)."""
        if not self._closed and not self.busy:
            with self._work:
                self._pipeline.deliver()
            lifecycle.finish_termination()
        return self._pipeline.summary()

    # The end.

    def close(self) -> None:
        """Wait for the device, write everything out, and take off every hook. Idempotent."""
        self.end("closed")

    def end(self, how: str) -> None:
        """Close the session and note in ``run.json`` how it ended; what a Ctrl-C cut short, a second call finishes."""
        if self._ended:
            return
        try:
            self._closed = True
            self._tracker.finish(patient=how != lifecycle.TERMINATED)
        except Exception as error:
            self._pipeline.say(f"the last steps are lost after {type(error).__name__}: {error}")
            if raised_by_handler(error):
                raise
        finally:
            with self._work:
                self._detach()
                self._pipeline.close(how)
                self._memory.close()
                lifecycle.release(self)
                self._ended = True
        lifecycle.finish_termination()

    def _detach(self) -> None:
        self._tracker.detach()
        try:
            self._handle.remove()
        except Exception as error:
            if raised_by_handler(error):
                raise

    def abandon(self) -> None:
        """Record nothing more and touch no file: this process is a fork of the session's own."""
        self._closed = self._ended = True
        self._pipeline.abandon()
        self._detach()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end("closed" if kind is None else f"error: {kind.__name__}: {error}")
