"""``Session``: the interface to the user's training loop; closing it removes every hook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from ..base.failures import contain, describe, ignore
from ..base.notes import Notes
from ..base.process import lifecycle
from ..base.signals import raised_by_handler
from ..base.storage.runs import RunFolder
from ..base.summary import Summary
from ..capture.handle import Handle
from ..devices import Memory
from ..probes.loaders import LoaderProbe, TimedLoader
from ..targets import Target
from .account import Account, Part
from .pipeline import Pipeline
from .step_listeners import StepListener
from .training_hooks import TrainingHooks
from .training_steps import TrainingSteps

Loader = TypeVar("Loader")


class Session:
    """A profiled run, returned by ``autoprof.instrument``; a context manager closes it. Use it on the training thread.

    This class is the session of a configuration with ``enabled: false``: it attaches nothing and records nothing.
    """

    folder: Path | None = None
    """The folder of this run, or None when it writes no files."""
    rank_folder: Path | None = None
    """The folder of this rank's own files, or None when it writes none."""

    @property
    def targets(self) -> tuple[Target, ...]:
        """The modules that are timed; without rules in the configuration they change in the first steps."""
        return ()

    def step(self) -> None:
        """End a step. The first call makes the session manual. After ``close`` it only warns, once."""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the block as a stage beside the training, such as a rollout or scoring: it belongs to no step.

        Reports have its time under ``name``, and the samples, tokens and frames that are logged inside.
        """
        yield

    @contextmanager
    def pause(self, name: str = "pause") -> Iterator[None]:
        """Exclude the block from steps: validation, saving, which reports ask to do less often where it takes long."""
        yield

    def loader(self, iterable: Loader) -> Loader:
        """Wrap a loader so that the wait for each batch is a ``data`` span; its attributes stay available."""
        return iterable

    def log(self, **scalars: Any) -> None:
        """Attach loss, lr, samples, … to the open step: numbers, or tensors of one element, read when resolved.

        ``samples``, ``tokens`` and ``frames`` are the units of throughput: those since the last call that had them. An
        unsampled step keeps nothing else.
        """

    def summary(self) -> Summary:
        """Return the statistics so far (of the whole run after ``close``)."""
        return Summary.empty()

    def close(self) -> None:
        """Wait for the device, write everything out, and remove every hook. Idempotent."""
        self.end("closed")

    def end(self, how: str) -> None:
        """Close the session and note in ``run.json`` how it ended; a second call finishes an interrupted one."""

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end("closed" if kind is None else f"error: {kind.__name__}: {error}")


class OpenSession(Session):
    """The session of a run that is recorded.

    A program may hold it much longer than the model: once it has ended it holds the last summary and the targets, and
    none of the parts that know the model.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        steps: TrainingSteps,
        hooks: TrainingHooks,
        loader_probe: LoaderProbe,
        account: Account,
        *,
        memory: Memory,
        notes: Notes,
        folder: RunFolder | None,
        attached: Handle,
    ) -> None:
        self.folder = None if folder is None else folder.path
        self.rank_folder = None if folder is None else folder.rank_path
        self._pipeline = pipeline
        self._steps = steps
        self._hooks = hooks
        self._account = account
        self._work = steps.work
        self._loader_probe = loader_probe
        self._memory = memory
        self._notes = notes
        self._attached = attached
        self._closed = self._ended = False
        self._last_steps = 0
        self._last_summary: Summary | None = None
        """The summary of the whole run, from its end on."""
        self._last_targets: tuple[Target, ...] | None = None
        """The targets of the last step, from the end on."""

    def start(self) -> None:
        """Open the first step. Called once, by the builder."""
        self._hooks.start()

    @property
    def targets(self) -> tuple[Target, ...]:
        return self._steps.targets if self._last_targets is None else self._last_targets

    @property
    def steps(self) -> int:
        """The steps that have ended, recorded or not."""
        return self._last_steps if self._ended else self._steps.number - 1

    @property
    def ended(self) -> bool:
        """Whether the session is closed, by whomever."""
        return self._ended

    @property
    def busy(self) -> bool:
        """Whether the session's own code is running: it must not be closed now."""
        return self._work.depth > 0

    # Called by deep captures.

    def follow_steps(self, listener: StepListener, count: int) -> Callable[[], None]:
        """Record the next steps and pass the number of each to ``listener``; return the function that ends this."""
        if self._ended:
            return lambda: None
        self._hooks.attach_again()
        return self._steps.follow(listener, count)

    def warn_once(self, note: str) -> None:
        """Keep a note for the reports; log it the first time."""
        self._notes.warn_once(note)

    # Called by the user's loop; documented in ``Session``.

    def step(self) -> None:
        if not self._closed:
            self._hooks.step()
        else:
            self._notes.warn_once("session.step: this session is closed; instrument the model again to go on")

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        with nullcontext() if self._ended else self._hooks.excluding(name, chosen=True):
            yield

    @contextmanager
    def pause(self, name: str = "pause") -> Iterator[None]:
        with nullcontext() if self._ended else self._hooks.excluding(name):
            yield

    def loader(self, iterable: Loader) -> Loader:
        if self._ended:
            return iterable
        wrapped: Any = TimedLoader(iterable, self._loader_probe)
        return wrapped  # type: ignore[no-any-return]

    def log(self, **scalars: Any) -> None:
        if self._closed:
            return
        for name, value in scalars.items():
            try:
                self._steps.log(name, value)
            except (TypeError, ValueError, RuntimeError) as error:
                self._notes.warn_once(f"session.log: {name} is left out ({error}); it must be a number")

    def summary(self) -> Summary:
        if self._last_summary is not None:
            return self._last_summary
        if not self._closed and not self.busy:
            self._hooks.attach_again()
            with self._work:
                self._pipeline.flush()
                self._steps.count_gap()
            lifecycle.finish_termination()
        return self._pipeline.summarizer.summary()

    # The end.

    def end(self, how: str) -> None:
        if self._ended:
            return
        try:
            self._closed = True
            self._account.begin_end()
            self._hooks.finish(patient=how != lifecycle.TERMINATED)
        except Exception as error:
            self._notes.warn_once(f"the last steps are lost after {describe(error)}")
            if raised_by_handler(error):
                raise
        finally:
            with self._work, self._account.work(Part.END):
                self._detach()
                summary = self._pipeline.close(how)
                self._memory.close()
                lifecycle.release(self)
                self._ended = True
                self._last_summary = summary
                self._let_go()
        lifecycle.finish_termination()

    def _detach(self) -> None:
        self._hooks.remove()
        self._steps.detach()
        with contain(ignore):
            self._attached.remove()

    def _let_go(self) -> None:
        """Let go of each part that knows the model, its optimizers or a loader; no call needs them any more."""
        self._last_targets = self._steps.targets
        self._last_steps = self._steps.number - 1
        del self._pipeline, self._hooks, self._steps, self._loader_probe, self._memory

    def abandon(self) -> None:
        """Record nothing more and touch no file: this process is a fork of the session's own."""
        self._closed = self._ended = True
        self._pipeline.abandon()
        self._detach()
