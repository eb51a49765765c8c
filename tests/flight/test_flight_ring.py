"""The steps of a rank, and its state in a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoprof.session.flight.ring import CAPACITY, FlightFile, State, StepRing, read_flight


@pytest.fixture
def ring() -> StepRing:
    return StepRing(0)


def test_the_file_has_the_state_written_last(ring: StepRing, tmp_path: Path) -> None:
    """The number of steps, the begin of the open one, and the work of the training thread; a pause is a state."""
    path = tmp_path / "flight.json"
    file = FlightFile(path)
    file.write(ring, 0, 0, {})
    before = read_flight(path)
    for number in range(CAPACITY + 5):
        ring.end_step(1000 * (number + 1))
    ring.pause(True)
    file.write(ring, 9_000_000, 7, {"site": "é", "stack": ["short"]})
    flight = read_flight(path)
    assert (flight.steps, flight.state, flight.usual_ns, flight.is_running) == (CAPACITY + 5, State.EXCLUDED, 7, True)
    assert flight.last_unix_ns - before.last_unix_ns == 9_000_000
    assert flight.began_unix_ns - before.began_unix_ns == 1000 * (CAPACITY + 5)
    assert flight.text == {"site": "é", "stack": ["short"]}
    assert ring.lengths().tolist() == [1000] * CAPACITY


def test_the_lengths_are_without_excluded_time(ring: StepRing) -> None:
    """A pause and autoprof's own work are no part of a step."""
    ring.exclude(700)
    ring.end_step(1000)
    ring.end_step(1500)
    assert ring.lengths().tolist() == [300, 500]


def test_steps_that_were_not_seen_one_by_one_have_no_length(ring: StepRing) -> None:
    """The number of a recorded step is taken over; the steps before it that were not seen are left out."""
    ring.end_step(ring.began_ns + 10)
    ring.begin_recorded(4)
    ring.end_step(ring.began_ns + 20)
    assert (ring.count, ring.lengths().tolist()) == (4, [10, 20])
    ring.begin_recorded(5)
    assert ring.count == 4


@pytest.mark.parametrize(
    "damage", [{"steps": None, "extra": 1}, {"state": "unknown"}, {"text": "no mapping"}, None, "no object"]
)
def test_a_damaged_file_is_refused(ring: StepRing, tmp_path: Path, damage: object) -> None:
    """By ``ValueError``, which readers list."""
    path = tmp_path / "flight.json"
    FlightFile(path).write(ring, 0, 7, {})
    content = path.read_text(encoding="utf-8")
    changed = json.dumps({**json.loads(content), **damage} if isinstance(damage, dict) else damage)
    path.write_text(changed if damage is not None else content[:-1], encoding="utf-8")
    with pytest.raises(ValueError, match=r"file of this version|damaged"):
        read_flight(path)
