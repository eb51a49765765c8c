"""``Observer``: a part that sees every step and frame of a run, and adds its findings to the summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..base.frame import FrameRun
    from ..base.summary import Summary
    from .raw import RawStep


class Observer:
    """Follow one run. All methods are called on the training thread; a subclass overrides those that it needs.

    The observers of a run have an order. Each step and each run of frames goes through them in it, ``annotate`` too, so
    that each sees the annotations of those before it; ``finish`` is called in the reverse order.
    An observer that fails in ``step`` or ``frames`` is called no more; the others go on.
    """

    provides = "part of the summary"
    """A noun for the annotation, in the note of its failure: ``no {provides} after …``."""
    is_idle = False
    """Whether ``step`` has nothing to do: it is not called then."""

    def step(self, raw: RawStep) -> RawStep:
        """Take the data of a closed step that the next one would overwrite; return the step, or a copy that differs.

        Called at the end of each step, where the caches are cold: all other work belongs to ``frames``.
        """
        return raw

    def frames(self, run: FrameRun) -> None:
        """Take the frames of steps in a row, once the device has passed them. Several steps come at once."""

    def annotate(self, summary: Summary) -> Summary:
        """Return the summary with the annotations of this part."""
        return summary

    def finish(self, *, complete: bool) -> Mapping[str, Any]:
        """End the work of this part before the last summary; return its entries of ``run.json``.

        ``complete``: there is time for postponed work.
        """
        return {}
