"""Where the steps go: the options of each sink."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from .part import Part


class ConsoleOptions(Part):
    """The live table on the terminal."""

    top: int = Field(default=5, ge=1, strict=True)
    """How many names are shown, the longest first."""
    every: int = Field(default=10, ge=1, strict=True)
    """Redraw at most each Nth step; where there is no terminal, print one plain line each Nth step."""
    interval_s: float = Field(default=0.5, ge=0, strict=True, allow_inf_nan=False)
    """The least time between two redraws, in seconds."""


class LogOptions(Part):
    """The readable file `timing.log`."""

    every: int = Field(default=1, ge=1, strict=True)
    """Write each Nth recorded step."""
    flush_s: float = Field(default=5.0, ge=0, strict=True, allow_inf_nan=False)
    """The longest time that a line may wait before it reaches the file, in seconds."""
    flush_every: int | None = Field(default=None, ge=1, strict=True)
    """Flush after each Nth written step as well; `null` leaves it to `flush_s`."""


class JsonlOptions(Part):
    """The records `steps.jsonl`, one JSON object a step."""

    every: int = Field(default=1, ge=1, strict=True)
    """Write each Nth recorded step."""
    flush_s: float = Field(default=5.0, ge=0, strict=True, allow_inf_nan=False)
    """The longest time that a record may wait before it reaches the file, in seconds."""


class MemoryPlotOptions(Part):
    """The picture `memory.png`."""

    redraw_s: float | None = Field(default=60.0, ge=5, strict=True, allow_inf_nan=False)
    """The time between two drawings, in seconds; `null` draws only at the end."""


class Sinks(Part):
    """Where the steps go. A sink that is named is on, with its defaults where its value is empty."""

    console: ConsoleOptions | None = None
    """The live table on the terminal."""
    log: LogOptions | None = None
    """The readable file `timing.log`."""
    jsonl: JsonlOptions | None = None
    """The records `steps.jsonl`, one JSON object a step."""
    memory_plot: MemoryPlotOptions | None = None
    """The picture `memory.png`."""

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_switch(cls, value: Any) -> Any:
        if isinstance(value, bool):
            word = str(value).lower()
            raise ValueError(f"{word} is a truth value; allowed: the sink's options, {{}} for its defaults, or no key")
        return value

    @classmethod
    def all_with_defaults(cls) -> Sinks:
        """Return the sinks of a configuration that has no `sinks` key."""
        return cls(console=ConsoleOptions(), log=LogOptions(), jsonl=JsonlOptions(), memory_plot=MemoryPlotOptions())
