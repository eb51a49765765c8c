"""A deep capture: which steps, and what is recorded of them."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from annotated_types import Ge
from pydantic import ConfigDict, Field, Strict, field_validator, model_validator

from .._names import clean_name
from .._options import Options
from .patterns import compile_pattern

MOST_STEPS: Final = 100


class DeepPattern(Options):
    """Operators, kernels or layers whose time is drawn call by call."""

    match: str = Field(min_length=1)
    """A regular expression that is found in the name of an operator, a kernel or a layer."""
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

    The steps are recorded whatever the budget says, and kept apart from the statistics.
    """

    model_config = ConfigDict(json_schema_extra={"anyOf": [{"required": ["steps"]}, {"required": ["on"]}]})

    steps: tuple[Annotated[int, Strict(), Ge(1)], ...] | None = Field(default=None, min_length=1, max_length=2)
    """The first and the last step, both captured; one number is one step."""
    on: Literal["verdict"] | None = None
    """`verdict`: also capture the next steps, once, when the verdict on the card names something."""
    window: int = Field(default=3, ge=1, le=MOST_STEPS, strict=True)
    """How many steps that is."""
    prefix: str = ""
    """What the names of the files begin with."""
    activities: tuple[Literal["cpu", "cuda", "xpu", "mtia", "hpu", "privateuse1"], ...] = ()
    """What `torch.profiler` records. Empty: all that there is."""
    memory: bool = Field(default=True, strict=True)
    """Record allocations, for the memory at the end of each layer."""
    shapes: bool = Field(default=False, strict=True)
    """Record the shapes of operators' inputs."""
    stacks: bool = Field(default=False, strict=True)
    """Record Python's stack at each operator. Large, and slow."""
    snapshot: bool = Field(default=False, strict=True)
    """Write the snapshot of the CUDA allocator as well."""
    patterns: tuple[DeepPattern, ...] = ()
    """What is drawn call by call. Empty: flash attention, and spatial, temporal and CogVideo blocks."""
    max_mib: int = Field(default=64, ge=1, strict=True)
    """The size of the trace, in MiB: beyond it its shortest events are left out."""

    @property
    def window_of_steps(self) -> tuple[int, int] | None:
        """The first and the last of `steps`."""
        return None if self.steps is None else (self.steps[0], self.steps[-1])

    @field_validator("steps")
    @classmethod
    def _in_order(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if value is not None and not 0 <= value[-1] - value[0] < MOST_STEPS:
            raise ValueError(
                f"{list(value)} is not a first and a last step; allowed: two numbers in order, at most "
                f"{MOST_STEPS} steps, or one"
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
            raise ValueError("it captures nothing by itself; it needs 'steps' or 'on', or both")
        return self
