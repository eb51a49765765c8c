"""The note at the end of a run whose steps were not found, or not all of them."""

from __future__ import annotations

from ..base.process import lifecycle
from ..base.units import count
from .step_detector import StepDetector


def note_missed_steps(detector: StepDetector, found: int) -> str | None:
    """Return the note where the program made more steps than the ``found`` ones; None where it did not."""
    made = detector.steps_missed(found)
    if made is not None:
        return (
            f"{count(found, 'step')} {'was' if found == 1 else 'were'} found, "
            f"but one optimizer made {count(made, 'step')}; "
            "to say where a step ends, open the session in the program (autoprof.instrument) and call "
            "session.step() at the end of each iteration"
        )
    if detector.lacks_updates and lifecycle.ended_well():  # else it died in its first step
        return (
            "no step was found, because no torch optimizer made a step: call session.step() at the end of each "
            "iteration"
        )
    return None
