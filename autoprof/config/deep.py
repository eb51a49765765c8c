"""The options of deep captures."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from annotated_types import Ge
from pydantic import ConfigDict, Field, Strict, field_validator, model_validator

from .._names import clean_name
from .._options import Options
from .patterns import compile_pattern

MAX_STEPS: Final = 100


class DeepPattern(Options):
    """Operators, kernels or layers whose calls are drawn one by one."""

    match: str = Field(min_length=1)
    """A regular expression that is searched for in the names of operators, kernels and layers."""
    name: str | None = Field(default=None, min_length=1)
    """The name to show. Default: the expression."""

    @field_validator("match")
    @classmethod
    def _compiles(cls, value: str) -> str:
        compile_pattern(value)
        return value

    @property
    def label(self) -> str:
        """The name to show, clean."""
        return clean_name(self.name or self.match)


class Deep(Options):
    """A deep capture of some steps through `torch.profiler`, under autoprof's names. It needs `steps` or `on`.

    The steps are recorded whatever the budget is, and are excluded from the statistics.
    """

    model_config = ConfigDict(json_schema_extra={"anyOf": [{"required": ["steps"]}, {"required": ["on"]}]})

    steps: tuple[Annotated[int, Strict(), Ge(1)], ...] | None = Field(default=None, min_length=1, max_length=2)
    """The first and the last step, both captured; one number is one step."""
    on: Literal["verdict"] | None = None
    """`verdict`: also capture the next steps, once, after the first finding of a problem."""
    window: int = Field(default=3, ge=1, le=MAX_STEPS, strict=True)
    """The number of these steps."""
    prefix: str = ""
    """The beginning of the file names."""
    activities: tuple[Literal["cpu", "cuda", "xpu", "mtia", "hpu", "privateuse1"], ...] = ()
    """The activities that `torch.profiler` records. Empty: all that are available."""
    memory: bool = Field(default=True, strict=True)
    """Record allocations, for the memory at the end of each layer."""
    shapes: bool = Field(default=False, strict=True)
    """Record the shapes of operators' inputs."""
    stacks: bool = Field(default=False, strict=True)
    """Record the Python stack of each operator. It is slow, and the files are large."""
    snapshot: bool = Field(default=False, strict=True)
    """Write the snapshot of the CUDA allocator as well."""
    patterns: tuple[DeepPattern, ...] = ()
    """The calls that are drawn one by one. Empty: flash attention, and spatial, temporal and CogVideo blocks."""
    max_mib: int = Field(default=64, ge=1, strict=True)
    """The largest size of the trace in MiB; if it would be larger, its shortest events are dropped."""

    @property
    def window_of_steps(self) -> tuple[int, int] | None:
        """The first and the last of `steps`."""
        return None if self.steps is None else (self.steps[0], self.steps[-1])

    @field_validator("steps")
    @classmethod
    def _in_order(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if value is not None and not 0 <= value[-1] - value[0] < MAX_STEPS:
            raise ValueError(
                f"{list(value)} is not a first and a last step; allowed: two ascending numbers, at most "
                f"{MAX_STEPS} steps, or one"
            )
        return value

    @field_validator("prefix")
    @classmethod
    def _is_no_path(cls, value: str) -> str:
        if "/" in value or "\\" in value or "\0" in value:
            raise ValueError(f"{value!r} is a path; allowed: the beginning of a file's name")
        return value

    @model_validator(mode="after")
    def _captures(self) -> Deep:
        if self.steps is None and self.on is None:
            raise ValueError("it captures nothing; add 'steps' or 'on', or both")
        return self
