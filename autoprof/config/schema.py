"""The schema of the configuration: it validates, documents itself, and is published as a JSON Schema for editors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge
from pydantic import Field, PrivateAttr, Strict, ValidationInfo, field_validator

from ..base.options import Options
from .rules import FunctionRule, TargetRule
from .source import Source


class Sample(Options):
    """The steps that are recorded, the steps that count, and the overhead allowed for it."""

    every: int = Field(default=1, ge=1, strict=True)
    """Record at most every Nth step."""
    warmup: int = Field(default=3, ge=0, strict=True)
    """Exclude the first N steps from every statistic."""
    budget: float | None = Field(default=0.01, gt=0, lt=1, strict=True, allow_inf_nan=False)
    """The fraction of training time that autoprof may cost. Where recording costs more, rows inside others are closed
    (without `targets`), and then only one of each k steps is recorded. `null` limits nothing: every step is
    recorded, and FLOPs are counted, whatever that costs."""


class MemorySnapshot(Options):
    """A snapshot of the CUDA allocator when memory runs out, for the viewer at pytorch.org/memory_viz.

    On other devices a note says that none is written.
    """

    oom: bool = Field(default=True, strict=True)
    """Write the memory held at that moment to `memory_snapshot_rank<N>_oom.pickle`."""


class Deep(Options):
    """A deep capture of some steps through `torch.profiler`, under autoprof's names.

    The steps are recorded whatever the budget is, and are excluded from the statistics.
    """

    steps: tuple[Annotated[int, Strict(), Ge(1)], ...] = Field(min_length=1, max_length=2)
    """The first and the last step, both captured; one number is one step."""

    @field_validator("steps")
    @classmethod
    def _in_order(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        # The most steps of one deep capture: viewers do not open larger traces.
        most = 100
        if not 0 <= value[-1] - value[0] < most:
            raise ValueError(
                f"{list(value)} is not a first and a last step; allowed: two ascending numbers, at most "
                f"{most} steps, or one"
            )
        return value


class FlightOptions(Options):
    """The flight recorder: the last steps of each rank, readable after the process was killed, and hangs.

    A file `capture.request` in the folder of a rank makes a deep capture of two steps.
    """

    mode: Literal["auto", "on", "off"] = "auto"
    """`auto`: on where several ranks train; `on`: also with one; `off`: no file, no thread."""
    hang_s: float = Field(default=30.0, ge=1, strict=True, allow_inf_nan=False)
    """A step that has not ended after so many seconds may hang; also needed: 20 times the usual length."""


class Settings(Options):
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
    compile: Literal["inside", "outside", "off"] = "inside"
    """The rows of modules under `torch.compile`. `inside`: those inside a graph have their own. `outside`, `off`: a
    compiled module is timed as a whole."""
    monitor: Literal["auto", "off"] = "auto"
    """Read the host and the GPU once a second: utilisation, memory, power, clocks, temperature."""
    output: Path = Path("runs")
    """The folder that contains the run folders, relative to the working directory."""
    output_max_mb: float | None = Field(default=1000.0, ge=10, strict=True, allow_inf_nan=False)
    """The largest size of a run's folder in MB. When it is reached, old sections of `timing.log` go, and of the records
    steps spread over the run. `null`: no limit."""
    memory_snapshot: MemorySnapshot | None = None
    """Memory held by the CUDA allocator and its origin, when memory runs out."""
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
        return cls.model_fields[info.field_name or ""].default if value is None else value

    @field_validator("output", mode="before")
    @classmethod
    def _is_folder(cls, value: Any) -> Any:
        if isinstance(value, str) and (not value.strip() or "\0" in value):
            raise ValueError(f"{value!r} is not a folder; allowed: a path such as runs")
        return value

    @field_validator("output")
    @classmethod
    def _expand_home(cls, value: Path) -> Path:
        return Path(os.path.expanduser(value))  # ``Path.expanduser`` raises for an unknown user
