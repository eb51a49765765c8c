"""``RunFacts``: everything the rules use that is in no summary, as plain data that goes to and from ``run.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from ..capture.hooks.results import RepeatedCalls
from ..capture.hooks.sizes import ModuleSize
from ..errors import OutputError
from ..probes import KeptTensors
from ..ranks import RankComparison
from ._calls import CallStatistics, CompileStatistics
from ._environment import Environment
from ._optimizers import OptimizerInfo
from ._python_threads import PythonThread
from ._stacks import StackTable


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts of a run; None is not known."""

    budget: float | None = None
    """The overhead budget, as a fraction of the step's time."""
    memory_capacity_bytes: int | None = None
    world_size: int = 1
    collected: tuple[int, ...] | None = None
    """The longest steps in which a full garbage collection ran."""
    collections: int = 0
    """Number of steps with a full garbage collection."""
    nodes: float | None = None
    """Nodes of autograd that a mean step makes, in the model and outside of it."""
    collects: bool = True
    """Whether Python collects garbage by itself."""
    optimizers: tuple[OptimizerInfo, ...] | None = None
    rank: int = 0
    waits: CallStatistics | None = None
    """Calls that waited for the device; None without a device's clock."""
    logs: CallStatistics | None = None
    """Calls that logged."""
    debug: Mapping[str, float] = field(default_factory=dict)
    """Debugging switches, with the share of the recorded steps in which each was on."""
    compiled: CompileStatistics | None = None
    """Compilations by ``torch.compile``; None where they were not counted."""
    ranks: RankComparison | None = None
    """Comparison of the ranks; None with a single rank, and on all ranks but 0."""
    leaf_modules: int | None = None
    """Modules of the model that hold no others; None where they were not counted."""
    sizes: Mapping[str, ModuleSize] = field(default_factory=dict)
    """Class and bytes passed in one call of the recorded modules, by fqn."""
    repeated: Mapping[str, RepeatedCalls] = field(default_factory=dict)
    """Modules whose calls returned the values of an earlier call of the same step, by fqn."""
    explained: Mapping[int, float] = field(default_factory=dict)
    """How many times as long as a step of usual inputs a step may take, by its number, where it has larger inputs."""
    environment: Environment = field(default_factory=Environment)
    stacks: Mapping[str, StackTable] = field(default_factory=dict)
    """Samples of the training thread's stack by kind of time; empty where nothing had to be sampled."""
    trains_copy: bool = False
    """Whether an optimizer trains a copy of the model, whose modules have no rows."""
    untrained: tuple[str, ...] = ()
    """Modules whose parameters get gradients that no optimizer uses, by fqn; known at the end of the run."""
    cleared: Mapping[str, float] = field(default_factory=dict)
    """The part of the backward passes whose gradients were cleared before any step used them, by the modules' fqn."""
    kept: tuple[KeptTensors, ...] = ()
    """Variables that keep more tensors as the run goes on; looked for only where memory grows."""
    heap_growth_bytes: int | None = None
    """Growth of the memory in use since the first reading, without what the C library keeps; None where not known."""
    threads: tuple[PythonThread, ...] = ()
    """The other Python threads that compute."""
    training_cores: float | None = None
    """The share of a processor that the training thread used; None where there was no other thread."""

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RunFacts:
        """Read back the result of ``to_dict``."""
        return _adapter().validate_python(data)

    @classmethod
    def of_run_info(cls, info: Mapping[str, Any]) -> RunFacts:
        """Read the facts in ``run.json``; for a run that was killed, take those known at its start.

        Raises ``OutputError`` where they cannot be read.
        """
        try:
            if info.get("facts"):
                return cls.from_dict(info["facts"])
            sample = (info.get("config") or {}).get("sample") or {}
            return cls(budget=sample.get("budget"), world_size=info.get("world_size") or 1)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise OutputError(
                f"run.json: facts: {type(error).__name__}: {error}; it is incomplete or of another version"
            ) from error


@cache
def _adapter() -> TypeAdapter[RunFacts]:
    return TypeAdapter(RunFacts)
