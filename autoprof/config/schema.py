"""The schema of the configuration: it validates, documents itself, and is published as a JSON Schema for editors."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator

from .._options import Options
from .deep import Deep, DeepPattern
from .flight import FlightOptions
from .rules import FunctionRule, TargetRule
from .sinks import Sinks
from .source import Source

__all__ = [
    "Config",
    "Deep",
    "DeepPattern",
    "FlightOptions",
    "FunctionRule",
    "MemorySnapshot",
    "Sample",
    "Sinks",
    "TargetRule",
]


class Sample(Options):
    """The steps that are recorded, the steps that count, and the overhead allowed for it."""

    every: int = Field(default=1, ge=1, strict=True)
    """Record at most every Nth step."""
    warmup: int = Field(default=3, ge=0, strict=True)
    """Exclude the first N steps from every statistic."""
    budget: float | None = Field(default=0.01, gt=0, lt=1, strict=True, allow_inf_nan=False)
    """The fraction of training time that autoprof may cost. Where recording costs more, the rows that hold least time
    for their cost are dropped, and then only every k-th step is recorded. `null` records every step whatever its
    overhead."""


class MemorySnapshot(Options):
    """A snapshot of the CUDA allocator, `memory_snapshot_rank<N>.pickle`, for the viewer at pytorch.org/memory_viz.

    On other devices a note says that none is written.
    """

    first: int | None = Field(default=10, ge=1, strict=True)
    """Record allocations from the start of this step; `null` records no window."""
    window: int = Field(default=2, ge=1, strict=True)
    """The number of steps in the window. Their times include the overhead of the recording."""
    oom: bool = Field(default=False, strict=True)
    """Write the memory held at that moment to `memory_snapshot_rank<N>_oom.pickle` when memory runs out."""
    history: bool = Field(default=False, strict=True)
    """Record during the whole run, so that an out-of-memory snapshot also shows the code that allocated. It slows
    every allocation in every step."""
    entries: int = Field(default=100_000, ge=1, strict=True)
    """The largest number of recorded allocations and frees; the last ones are kept."""
    stacks: Literal["python", "all"] = "python"
    """Record the Python stack of each, or Python and C++ stacks."""
    max_mib: int = Field(default=256, ge=1, strict=True)
    """The largest size of a file in MiB. If it would be larger, the older half of the history is dropped repeatedly."""


class Config(Options):
    """The configuration of a run: recorded modules and steps, and the outputs."""

    enabled: bool = Field(default=True, strict=True)
    """`false` disables autoprof: no hooks, no files."""
    targets: tuple[TargetRule, ...] = ()
    """The modules to time. The first rule that matches a module wins. Empty: the run finds those that take long."""
    functions: tuple[FunctionRule, ...] = ()
    """The functions to time."""
    step: Literal["auto", "manual"] = "auto"
    """The end of a step. `manual`: the call of `session.step()`. `auto`: found from the optimizer and the next batch,
    unless `session.step()` is called."""
    sample: Sample = Sample()
    """The steps that are recorded, and the overhead allowed for it."""
    flops: Literal["auto", "off"] = "auto"
    """Count the floating-point operations of a step, once for each shape of its inputs."""
    monitor: Literal["auto", "off"] = "auto"
    """Read the host and the GPU once a second: utilisation, memory, power, clocks, temperature."""
    output: Path = Path("runs")
    """The folder that contains the run folders, relative to the working directory."""
    output_max_mb: float | None = Field(default=1000.0, ge=10, strict=True, allow_inf_nan=False)
    """The largest size of a run's folder in MB. When it is reached, old sections of `timing.log` go, and of the records
    steps spread over the run. `null`: no limit."""
    sinks: Sinks = Field(default_factory=Sinks.all_with_defaults)
    """The outputs. `{}`: none. Without this key: console, log, jsonl, memory_plot; for several ranks ranks_trace."""
    ranges: Literal["off", "nvtx", "profiler", "both"] = "off"
    """Show the spans of recorded steps to other tools as well: `nvtx` to Nsight, `profiler` to `torch.profiler`."""

    memory_snapshot: MemorySnapshot | None = None
    """Memory held by the CUDA allocator and its origin, for a window of steps or when memory runs out."""

    deep: Deep | None = None
    """A deep capture of some steps through `torch.profiler`."""

    flight_recorder: FlightOptions = FlightOptions()
    """The last steps of each rank, hangs, and deep captures that are asked for during the run."""

    _source: Source = PrivateAttr(default=Source())

    def model_post_init(self, context: Any, /) -> None:
        """Keep the source from the validation context."""
        if isinstance(context, Source):
            self._source = context

    @property
    def source(self) -> Source:
        """The file of the configuration, with the line of each key."""
        return self._source

    @field_validator("targets", "functions", "sample", "flight_recorder", mode="before")
    @classmethod
    def _empty_is_default(cls, value: Any, info: ValidationInfo) -> Any:
        return (
            {} if value is None and info.field_name in ("sample", "flight_recorder") else () if value is None else value
        )

    @field_validator("sinks", mode="before")
    @classmethod
    def _not_empty(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("the value is missing; write {} for no sinks, or remove the key for the default sinks")
        return value

    @field_validator("flops", "monitor", "ranges", mode="before")
    @classmethod
    def _false_is_off(cls, value: Any) -> Any:
        return "off" if value is False else value  # YAML 1.1 reads a bare `off` as false

    @field_validator("output", mode="before")
    @classmethod
    def _is_folder(cls, value: Any) -> Any:
        if isinstance(value, str) and (not value.strip() or "\0" in value):
            raise ValueError(f"{value!r} is not a folder; allowed: a path such as runs")
        return value

    @field_validator("output")
    @classmethod
    def _expand_home(cls, value: Path) -> Path:
        try:
            return value.expanduser()
        except RuntimeError as error:
            raise ValueError(f"{str(value)!r}: the home folder is unknown; allowed: a path such as runs") from error
