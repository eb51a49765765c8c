"""``RunFacts``: everything the rules use that is in no summary, as plain data that goes to and from ``run.json``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from .._ranks import RankComparison
from ..errors import OutputError
from ._calls import CallStatistics
from ._compilations import CompileStatistics
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
    has_model: bool = True
    """Whether names are modules of a model; False for the names of a ``TimingLogger``."""
    leaf_modules: int | None = None
    """Modules of the model that hold no others; None where they were not counted."""
    environment: Environment = field(default_factory=Environment)
    stacks: Mapping[str, StackTable] = field(default_factory=dict)
    """Samples of the training thread's stack by kind of time; empty where nothing had to be sampled."""
    threads: tuple[PythonThread, ...] = ()
    """The other Python threads that compute."""

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RunFacts:
        """Read back the result of ``to_dict``, also that of older versions."""
        values = {_RENAMED_KEYS.get(name, name): value for name, value in data.items() if name not in _GONE_KEYS}
        if values.get("collected") is not None:
            values["collected"] = tuple(values["collected"])
        if values.get("optimizers") is not None:
            values["optimizers"] = tuple(
                OptimizerInfo(**{key: value for key, value in one.items() if key != "state_word_bytes"})
                for one in values["optimizers"]
            )
        if isinstance(values.get("threads"), list):
            values["threads"] = tuple(PythonThread(**one) for one in values["threads"])
        else:  # older versions kept other figures of them
            values.pop("threads", None)
        for name, read in _READERS.items():
            if values.get(name) is not None:
                values[name] = read(values[name])
        return cls(**values)

    @classmethod
    def of_run_info(cls, info: Mapping[str, Any]) -> RunFacts:
        """Read the facts in ``run.json``; for a run that was killed, take those known at its start.

        Raises ``OutputError`` where they cannot be read.
        """
        try:
            return cls.from_dict(info["facts"]) if info.get("facts") else cls._at_start(info)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise OutputError(
                f"run.json: facts: {type(error).__name__}: {error}; it is incomplete or of another version"
            ) from error

    @classmethod
    def _at_start(cls, info: Mapping[str, Any]) -> RunFacts:
        sample = (info.get("config") or {}).get("sample") or {}
        return cls(budget=sample.get("budget"), world_size=info.get("world_size") or 1)


_RENAMED_KEYS: Final = {"surroundings": "environment"}  # key of saved runs
_GONE_KEYS: Final = frozenset({"cleanups"})  # keys of saved runs
_READERS: Final[dict[str, Callable[[Mapping[str, Any]], Any]]] = {
    "waits": CallStatistics.from_dict,
    "logs": CallStatistics.from_dict,
    "compiled": CompileStatistics.from_dict,
    "ranks": RankComparison.from_dict,
    "environment": Environment.from_dict,
    "stacks": lambda tables: {kind: StackTable.from_dict(table) for kind, table in tables.items()},
}
