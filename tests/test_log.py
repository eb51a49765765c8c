"""Warnings of the logger ``autoprof`` reach standard error by themselves, and the program's own logging instead."""

import io
import logging
import sys
from pathlib import Path

import pytest

from autoprof.base.log import StandardError, logger


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the logger off from the handlers of pytest: a program that has set up no logging."""
    monkeypatch.setattr(logger, "parent", None)


def stream(path: Path) -> io.TextIOWrapper:
    """Return a stream that buffers, as that of a program."""
    return open(path, "w", encoding="utf-8")


@pytest.mark.usefixtures("alone")
def test_a_warning_is_written_to_standard_error_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After the text that the program has in its buffer, and only from the level of a warning on."""
    with stream(tmp_path / "err") as err:
        monkeypatch.setattr(sys, "stderr", err)
        err.write("mine\n")
        logger.warning("a %s", "note")
        logger.info("nothing")
        assert (tmp_path / "err").read_text() == "mine\na note\n"


@pytest.mark.usefixtures("alone")
def test_a_warning_for_a_full_device_leaves_the_stream_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter's last flush would fail on what lies there."""
    err = stream(Path("/dev/full"))
    monkeypatch.setattr(sys, "stderr", err)
    logger.warning("a note")
    err.close()


@pytest.mark.parametrize("whose", ["", "autoprof"], ids=["of the root", "of autoprof's logger"])
def test_a_handler_of_the_program_takes_the_place(monkeypatch: pytest.MonkeyPatch, whose: str) -> None:
    """Each warning is said once."""
    err, taken = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", err)
    handler = logging.StreamHandler(taken)
    logging.getLogger(whose).addHandler(handler)
    logger.warning("a note")
    logging.getLogger(whose).removeHandler(handler)
    assert (err.getvalue(), taken.getvalue()) == ("", "a note\n")


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("missing", ["stderr", "lastResort"])
def test_without_a_stream_or_with_the_last_resort_off_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """``logging.lastResort = None`` is how a program asks for silence."""
    err = io.StringIO()
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr(sys if missing == "stderr" else logging, missing, None)
    logger.warning("a note")
    assert err.getvalue() == ""


def test_the_logger_has_one_handler_of_its_own() -> None:
    """Whichever parts of autoprof were imported."""
    assert [type(handler) for handler in logger.handlers].count(StandardError) == 1
