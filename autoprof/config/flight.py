"""The options of the flight recorder."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from .._options import Options


class FlightOptions(Options):
    """The flight recorder: the last steps of each rank, readable after the process was killed, and hangs.

    It also makes deep captures of a few steps when one is asked for.
    """

    mode: Literal["auto", "on", "off"] = "auto"
    """`auto`: on where several ranks train; `on`: also with one; `off`: no file, no thread, no signal handler."""
    hang_s: float = Field(default=30.0, ge=1, strict=True, allow_inf_nan=False)
    """A step that has not ended after so many seconds may hang; also needed: 20 times the usual length."""
    capture_on: tuple[Literal["slow", "hang", "signal", "file"], ...] = ("signal", "file")
    """The events that begin a deep capture of the next steps: `slow`, a step of unlikely length; `hang`, after it has
    ended; `signal`, SIGUSR2 if the program does not handle it; `file`, a `capture.request` in the run's folder."""
    capture_steps: int = Field(default=2, ge=1, le=10, strict=True)
    """The number of steps of such a capture."""
    max_captures: int = Field(default=3, ge=0, strict=True)
    """The most captures of a run, on each rank."""
    max_mb: int = Field(default=50, ge=1, strict=True)
    """The largest size of a trace in MB; if it would be larger, its shortest events are dropped."""

    @field_validator("mode", mode="before")
    @classmethod
    def _bool_is_word(cls, value: Any) -> Any:
        return {False: "off", True: "on"}.get(value, value) if isinstance(value, bool) else value  # YAML 1.1

    @field_validator("capture_on", mode="before")
    @classmethod
    def _none_is_empty(cls, value: Any) -> Any:
        return () if value is None else value
