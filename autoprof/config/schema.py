"""What can be asked for: the one schema that validates a configuration, documents it and describes it to editors."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator

from .._options import Options
from .deep import Deep, DeepPattern
from .rules import FunctionRule, Rule
from .sinks import Sinks
from .source import Source

__all__ = [
    "Config",
    "Deep",
    "DeepPattern",
    "FunctionRule",
    "MemorySnapshot",
    "Rule",
    "Sample",
    "Sinks",
]


class Sample(Options):
    """Which steps are recorded, which of them count, and what that may cost."""

    every: int = Field(default=1, ge=1, strict=True)
    """Record each Nth step at most."""
    warmup: int = Field(default=3, ge=0, strict=True)
    """Keep the first N steps apart from every statistic."""
    budget: float | None = Field(default=0.01, gt=0, lt=1, strict=True, allow_inf_nan=False)
    """The fraction of training time that autoprof may cost: steps are left alone, without hooks, as often as it takes.
    Where too few are recorded then, the finest modules are dropped. `null` records every step whatever it costs."""


class MemorySnapshot(Options):
    """The allocator's snapshot `memory_snapshot_rank<N>.pickle`, to be looked at on pytorch.org/memory_viz.

    Only on CUDA; elsewhere a note says that none is written.
    """

    first: int | None = Field(default=10, ge=1, strict=True)
    """Record allocations from the start of this step; `null` records no window."""
    window: int = Field(default=2, ge=1, strict=True)
    """For so many steps. Their times include what recording costs."""
    oom: bool = Field(default=False, strict=True)
    """Write a snapshot, `memory_snapshot_rank<N>_oom.pickle`, when memory runs out: what is held at that moment."""
    history: bool = Field(default=False, strict=True)
    """Record through the whole run, so that a snapshot at that moment also says who allocated. It slows each
    allocation, in every step."""
    entries: int = Field(default=100_000, ge=1, strict=True)
    """At most so many allocations and frees, the last ones."""
    stacks: Literal["python", "all"] = "python"
    """What is recorded of each: the Python stack, or C++ as well."""
    max_mib: int = Field(default=256, ge=1, strict=True)
    """The size of a file, in MiB: beyond it the older half of the history is left out, again and again."""


class Config(Options):
    """All that a run is asked to record, and where it goes."""

    enabled: bool = Field(default=True, strict=True)
    """`false` attaches nothing and writes nothing."""
    targets: tuple[Rule, ...] = ()
    """The modules to time. The first rule that matches a module wins. Empty: every direct child of the model."""
    functions: tuple[FunctionRule, ...] = ()
    """The functions to time."""
    step: Literal["auto", "manual"] = "auto"
    """What ends a step: `manual` is the call of `session.step()`; `auto` also works without that call."""
    compile: Literal["outside"] = "outside"
    """How code under `torch.compile` is timed: from outside the compiled region."""
    sample: Sample = Sample()
    """Which steps are recorded, and what that may cost."""
    flops: Literal["auto", "trust", "off"] = "auto"
    """Whether the work of a step is counted, once for each shape of its inputs. `auto` leaves out a model whose code
    may write outside of the model; `trust` does not ask."""
    monitor: Literal["auto", "off"] = "auto"
    """Whether the host and the GPU are read once a second: utilisation, memory, power, clocks, temperature."""
    output: Path = Path("runs")
    """The folder in which each run gets its own; relative to the working directory."""
    sinks: Sinks = Field(default_factory=Sinks.all_with_defaults)
    """Where the steps go: `{}` is nowhere; without this key, to console, log, jsonl and memory_plot."""
    ranges: Literal["off", "nvtx", "profiler", "both"] = "off"
    """Show the spans of recorded steps to other tools as well: `nvtx` to Nsight, `profiler` to `torch.profiler`."""

    memory_snapshot: MemorySnapshot | None = None
    """What the CUDA allocator holds, and who asked for it: written for a window of steps, or when memory runs out."""

    deep: Deep | None = None
    """A deep capture of some steps through `torch.profiler`."""

    _source: Source = PrivateAttr(default=Source())

    def model_post_init(self, context: Any, /) -> None:
        """Take the source from the validation context, where there is one."""
        if isinstance(context, Source):
            self._source = context

    @property
    def source(self) -> Source:
        """Where the configuration came from."""
        return self._source

    @field_validator("targets", "functions", "sample", mode="before")
    @classmethod
    def _empty_is_default(cls, value: Any, info: ValidationInfo) -> Any:
        return {} if value is None and info.field_name == "sample" else () if value is None else value

    @field_validator("sinks", mode="before")
    @classmethod
    def _not_empty(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("the value is missing; write {} for no sinks, or leave the key out for the usual four")
        return value

    @field_validator("compile", mode="before")
    @classmethod
    def _only_outside(cls, value: Any) -> Any:
        word = "off" if value is False else value  # YAML 1.1 reads a bare `off` as false
        if word in ("inside", "off"):
            raise ValueError(f"'{word}' is not in this version of autoprof; allowed: outside")
        return value

    @field_validator("flops", "monitor", "ranges", mode="before")
    @classmethod
    def _off_is_a_word(cls, value: Any) -> Any:
        return "off" if value is False else value  # YAML 1.1 reads a bare `off` as false

    @field_validator("output", mode="before")
    @classmethod
    def _is_folder(cls, value: Any) -> Any:
        if isinstance(value, str) and (not value.strip() or "\0" in value):
            raise ValueError(f"{value!r} is not a folder; allowed: a path such as runs")
        return value

    @field_validator("output")
    @classmethod
    def _of_home(cls, value: Path) -> Path:
        try:
            return value.expanduser()
        except RuntimeError as error:
            raise ValueError(
                f"{str(value)!r} has no home folder to start from; allowed: a path such as runs"
            ) from error
