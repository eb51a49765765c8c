"""Notes on steps that get longer."""

from __future__ import annotations

import pytest
from evidence_builders import evidence_of

from autoprof.diagnose import diagnose


@pytest.mark.parametrize(("growth", "noted"), [(0.5, True), (0.0, False)])
def test_steps_that_get_longer_are_noted(growth: float, noted: bool) -> None:
    """From 20 ms on by half a millisecond in each step, or alike."""
    steps = [{"forward": 10 + growth * at, "step": 20 + growth * at} for at in range(80)]
    found = [note for note in diagnose(evidence_of(*steps)).notes if note.startswith("steps get longer")]
    note = "steps get longer: from 24.8 ms in the first quarter of the run to 54.8 ms in the last one"
    assert found == [note] * noted
