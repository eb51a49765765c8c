"""How much is measured: a full run, the default, a look of a minute, and the least that a test can run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Gpt:
    """The size of the GPT: layers, width, heads, vocabulary, and the batch and length of its input."""

    layers: int = 4
    width: int = 256
    heads: int = 8
    vocabulary: int = 8192
    batch: int = 4
    length: int = 64

    def arguments(self) -> list[str]:
        """Return the sizes as arguments of ``programs/gpt2.py``."""
        sizes = (self.layers, self.width, self.heads, self.vocabulary, self.batch, self.length)
        return ["--sizes", ",".join(map(str, sizes))]


@dataclass(frozen=True, slots=True)
class Scale:
    """The sizes of a run. A turn is some steps of one side in a row, bare or recorded."""

    name: str
    rounds: int
    """Blocks of each variant of the chain (rows 1 to 3 and 9)."""
    block_steps: int
    """Steps of a block: a second and more of them, so that the work of several passes is in each."""
    settling: int
    """Steps of a session before its block, about a second: it has then made its first passes, in which it counts FLOPs
    once and prints its first line."""
    turn_s: float
    """The length of a turn of rows 4, 6 and 7."""
    turns: int
    """Pairs of turns for each of them."""
    gpt: Gpt
    gpt_steps: int
    gpt_runs: int
    """Bare and recorded processes of the GPT (rows 4 and 8)."""
    loaded_runs: int
    """Runs beside busy processes (row 5)."""
    busy_processes: int
    modules: int
    """Modules of row 6."""
    lengths_ms: tuple[float, ...]
    reference: str
    """The size of the reference workload (row 7)."""
    convolution_steps: int
    convolution_size: int
    convolution_runs: int
    short_steps: int
    """Steps of 0.2 ms of a run (row 10)."""
    long_steps: int
    """Steps of 10 ms of a run (row 10)."""
    tail_runs: int
    memory_points: tuple[int, ...]
    many_modules: int
    """Modules of row 13."""
    many_steps: int


DEFAULT: Final = Scale(
    name="default",
    rounds=12,
    block_steps=750,
    settling=900,
    turn_s=1.0,
    turns=24,
    gpt=Gpt(),
    gpt_steps=120,
    gpt_runs=3,
    loaded_runs=5,
    busy_processes=4,
    modules=200,
    lengths_ms=(50.0, 100.0, 500.0),
    reference="small",
    convolution_steps=60,
    convolution_size=64,
    convolution_runs=5,
    short_steps=50_000,
    long_steps=2_000,
    tail_runs=2,
    memory_points=(10_000, 100_000),
    many_modules=1_000,
    many_steps=500,
)
_FULL: Final = {
    "rounds": 24,
    "turns": 60,
    "gpt_runs": 5,
    "short_steps": 150_000,
    "tail_runs": 5,
    "memory_points": (10_000, 100_000, 1_000_000),
}
_QUICK: Final = {
    "rounds": 2,
    "block_steps": 40,
    "settling": 20,
    "turn_s": 0.1,
    "turns": 2,
    "gpt_steps": 10,
    "gpt_runs": 1,
    "loaded_runs": 1,
    "lengths_ms": (50.0,),
    "reference": "tiny",
    "convolution_steps": 4,
    "convolution_runs": 1,
    "short_steps": 500,
    "long_steps": 30,
    "tail_runs": 1,
    "memory_points": (200, 400),
    "many_steps": 10,
}
_TINY: Final = {
    "rounds": 1,
    "block_steps": 3,
    "settling": 2,
    "turn_s": 0.01,
    "turns": 1,
    "gpt": Gpt(layers=1, width=16, heads=2, vocabulary=32, batch=1, length=8),
    "gpt_steps": 4,
    "busy_processes": 1,
    "modules": 8,
    "lengths_ms": (2.0,),
    "convolution_steps": 2,
    "convolution_size": 8,
    "short_steps": 20,
    "long_steps": 4,
    "memory_points": (10, 20),
    "many_modules": 20,
    "many_steps": 4,
}


def _scale(name: str, *changes: dict[str, object]) -> Scale:
    from dataclasses import replace

    merged: dict[str, object] = {"name": name}
    for change in changes:
        merged.update(change)
    return replace(DEFAULT, **merged)  # type: ignore[arg-type]


FULL: Final = _scale("full", _FULL)
QUICK: Final = _scale("quick", _QUICK)
TINY: Final = _scale("tiny", _QUICK, _TINY)
