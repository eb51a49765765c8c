"""``Observer``: a part that sees every step and frame of a run, and adds its findings to the summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._resolve import RawStep
    from .frame import FrameRun, StepFrame
    from .summary import Summary


class Observer:
    """Follow one run. All methods are called on the training thread; a subclass overrides those that it needs.

    The order for each step: ``observe_step``, ``complete_step``, ``observe_frame``.
    """

    provides = ""
    """A noun for the annotation, in the note of its failure: ``no {provides} after …``."""

    def observe_step(self, raw: RawStep) -> RawStep:
        """Take a step that has just ended; return it, or a copy that differs. The caches are cold: do little."""
        return raw

    def complete_step(self, raw: RawStep) -> RawStep:
        """Return the step with the scalars that belong to it, before its frame is made."""
        return raw

    def took_long(self) -> bool:
        """Return, once, whether ``complete_step`` did long work: the next step is then a warm-up step."""
        return False

    def observe_frame(self, frame: StepFrame) -> None:
        """Take the frame of a step, once the device has passed it."""

    def observe_run(self, run: FrameRun) -> None:
        """Take the frames of steps in a row, all at once; where it is overridden, it is called instead."""
        for frame in run.frames:
            self.observe_frame(frame)

    def annotate(self, summary: Summary) -> Summary:
        """Return the summary with the annotations of this part."""
        return summary

    def annotate_in_parts(self, summary: Summary) -> Iterator[Summary]:
        """Yield the summary as its annotation goes on, each time after a part of the work; the last is complete."""
        yield self.annotate(summary)

    def finish(self, *, complete: bool) -> None:
        """Prepare for the last summary; ``complete``: there is time for postponed work."""

    def run_info(self) -> Mapping[str, Any]:
        """Return the entries of ``run.json`` that are known at the end."""
        return {}

    def close(self) -> None:
        """Stop threads, close files. Called once, after the last summary."""
