"""The state of a rank in its file: it is read after the process was killed, and its size is fixed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autoprof._flight.ring import CAPACITY, FILE_BYTES, TEXT_BYTES, State, StepRing, read_flight


@pytest.fixture
def ring(tmp_path: Path) -> StepRing:
    return StepRing.create(tmp_path / "flight.bin")


def test_the_last_steps_are_known_while_the_run_goes_on(ring: StepRing, tmp_path: Path) -> None:
    """The lengths of the last ones are kept, the file has their number and the end of the last, and does not grow."""
    start_ns = ring.began_ns
    before = read_flight(tmp_path / "flight.bin")
    for number in range(CAPACITY + 5):
        ring.end_step(start_ns + 1000 * (number + 1))
    flight = read_flight(tmp_path / "flight.bin")
    assert (flight.steps, flight.state) == (CAPACITY + 5, State.TRAINING)
    assert flight.last_unix_ns - before.last_unix_ns == 1000 * (CAPACITY + 5)
    assert ring.lengths().tolist() == [1000] * CAPACITY
    assert (tmp_path / "flight.bin").stat().st_size == FILE_BYTES
    ring.close()


def test_the_lengths_are_without_excluded_time(ring: StepRing) -> None:
    """A pause and autoprof's own work are no part of a step."""
    start_ns = ring.began_ns
    ring.exclude(700)
    ring.end_step(start_ns + 1000)
    ring.end_step(start_ns + 1500)
    assert ring.lengths().tolist() == [300, 500]
    ring.close()


def test_steps_that_were_not_seen_one_by_one_have_no_length(ring: StepRing) -> None:
    """The number of a recorded step is taken over; the steps before it that were not seen are left out."""
    ring.end_step(ring.began_ns + 10)
    ring.begin_recorded(4)
    ring.end_step(ring.began_ns + 20)
    assert (ring.count, ring.lengths().tolist()) == (4, [10, 20])
    ring.begin_recorded(5)
    assert ring.count == 4
    ring.close()


def test_the_text_of_the_state_fits_whatever_its_stack(ring: StepRing, tmp_path: Path) -> None:
    """Outer lines of a long stack are left out."""
    ring.write_state(ring.began_ns + 5, 7, {"step": 1, "site": "é", "stack": ["short"]})
    assert read_flight(tmp_path / "flight.bin").text == {"step": 1, "site": "é", "stack": ["short"]}
    lines = [f"{number}" + "é" * 5000 for number in range(30)]
    ring.write_state(ring.began_ns + 5, 7, {"step": 1, "stack": lines})
    flight = read_flight(tmp_path / "flight.bin")
    assert flight.text["stack"][0] == "0" + "é" * 199
    assert 0 < len(flight.text["stack"]) < 30
    assert flight.usual_ns == 7
    ring.write_state(ring.began_ns, 7, {"site": "x" * TEXT_BYTES, "stack": []})
    assert read_flight(tmp_path / "flight.bin").text == {}
    ring.close()


def test_a_fork_does_not_write_to_the_file_of_its_parent(ring: StepRing, tmp_path: Path) -> None:
    """It closes the ring: further steps go nowhere, and the parent's state stays."""
    child = os.fork()
    if child == 0:
        ring.close()
        ring.end_step(ring.began_ns + 5)
        os._exit(0)
    os.waitpid(child, 0)
    flight = read_flight(tmp_path / "flight.bin")
    assert (flight.steps, flight.state, flight.is_running) == (0, State.TRAINING, True)
    ring.close()
    assert read_flight(tmp_path / "flight.bin").state is State.CLOSED
    ring.end_step(ring.began_ns + 5)  # after the end of the session nothing is written, and nothing fails
    assert read_flight(tmp_path / "flight.bin").steps == 0


def test_a_pause_and_a_hang_are_states(ring: StepRing) -> None:
    """A pause outranks a hang; the end of a pause is training again."""
    ring.mark_hang(True)
    assert ring.state is State.HANGING
    ring.pause(True)
    ring.mark_hang(True)
    assert ring.state is State.EXCLUDED
    ring.pause(False)
    assert ring.state is State.TRAINING
    ring.close()


def test_a_file_is_never_overwritten(ring: StepRing, tmp_path: Path) -> None:
    """Two ranks cannot share a file."""
    with pytest.raises(FileExistsError):
        StepRing.create(tmp_path / "flight.bin")
    ring.close()


@pytest.mark.parametrize("damage", ["short", "magic", "state", "text"])
def test_a_damaged_file_is_refused(ring: StepRing, tmp_path: Path, damage: str) -> None:
    """By ``ValueError``, which readers list."""
    ring.write_state(ring.began_ns, 7, {"step": 1, "stack": []})
    ring.close()
    path = tmp_path / "flight.bin"
    content = bytearray(path.read_bytes())
    if damage == "short":
        content = content[:-1]
    elif damage == "text":
        content[256:300] = b"\xff" * 44
    else:
        at = 0 if damage == "magic" else 8 * 8
        content[at] ^= 0x55
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"bytes|file of this version|damaged|Expecting"):
        read_flight(path)
