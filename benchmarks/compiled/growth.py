"""Compare a model with one in which a module does ten times the work: its row has to grow, and no other one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models import Batch, floats, squares
from ..table import markdown
from .case import Case, prepare
from .rows import Frames, counted, named_share, open_session, problems, rows, share

LARGE: Final = 10
STEPS: Final = 40
WARM: Final = 4
GROWN: Final = 0.8
"""The least share of the phase's growth in the row of the module."""
LEAST_MS: Final = 2.0
"""A phase that grows by less is not judged."""
OTHERS: Final = 0.1
OTHERS_MS: Final = 0.4
"""The most that another row may grow, as a share of the phase's growth, or in milliseconds."""
Rows = dict[tuple[str, str], float]
Make = Callable[[], nn.Module]


class Repeat(nn.Module):
    """Several modules of one kind, one after another, all within this module."""

    def __init__(self, times: int, make: Make) -> None:
        super().__init__()
        self.parts = nn.ModuleList([make() for _ in range(times)])

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x


class Attend(nn.Module):
    """Attention of four heads without weights."""

    def forward(self, x: Tensor) -> Tensor:
        q = x.view(*x.shape[:2], 4, -1).transpose(1, 2)
        return F.scaled_dot_product_attention(q, q, q).transpose(1, 2).flatten(2)


class Spread(nn.Module):
    """Softmax and sine: pointwise operations and reductions."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.softmax(x, -1) * torch.sin(x)


class Tables(nn.Module):
    """Several tables, whose look-ups are summed."""

    def __init__(self, times: int, make: Make) -> None:
        super().__init__()
        self.tables = nn.ModuleList([make() for _ in range(times)])

    def forward(self, words: Tensor) -> Any:
        return sum(table(words) for table in self.tables)


def _words(at: int) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    return (torch.randint(2000, (16, 512), generator=torch.Generator().manual_seed(at)),), {}, None


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128))


def _norm_relu() -> nn.Module:
    return nn.Sequential(nn.BatchNorm2d(32), nn.ReLU())


TOKENS: Final = floats(16, 128, 128)
KINDS: Final[Mapping[str, tuple[Batch, Make, Make, Make]]] = {
    "linear": (TOKENS, lambda: nn.Linear(128, 128), lambda: nn.Linear(128, 128), lambda: nn.Linear(128, 128)),
    "mlp": (TOKENS, lambda: nn.LayerNorm(128), _mlp, _mlp),
    "attention": (TOKENS, lambda: nn.Linear(128, 128), Attend, lambda: nn.Linear(128, 128)),
    "layernorm": (TOKENS, lambda: nn.Linear(128, 256), lambda: nn.LayerNorm(256), lambda: nn.Linear(256, 32)),
    "gelu": (TOKENS, lambda: nn.Linear(128, 128), nn.GELU, lambda: nn.Linear(128, 128)),
    "softmax": (TOKENS, lambda: nn.Linear(128, 128), Spread, lambda: nn.Linear(128, 128)),
    "convolution": (
        floats(8, 64, 16, 16), nn.ReLU, lambda: nn.Conv2d(64, 64, 3, padding=1),
        lambda: nn.Conv2d(64, 64, 3, padding=1),
    ),
    "batchnorm_relu": (
        floats(8, 32, 32, 32), lambda: nn.Conv2d(32, 32, 1), _norm_relu, lambda: nn.Conv2d(32, 32, 1)
    ),
    "embedding": (_words, nn.Identity, lambda: nn.Embedding(2000, 256), lambda: nn.LayerNorm(256)),
}  # fmt: skip
"""For each kind a batch, and the modules before, in the middle, which grows, and behind."""
PATH: Final = "mid"
names = list(KINDS)
QUICK: Final = "layernorm"


def fill(name: str) -> dict[str, Any]:
    """Compile both models of a pair without autoprof, so that torch's cache has their graphs."""
    for times in (1, LARGE):
        training = prepare(_case(name, times))
        for at in range(WARM):
            training.step(at)
    return {}


def measure(name: str) -> dict[str, Any]:
    """Train both models of a pair; return how the rows grew.

    Other programs of the machine add time to any row. The module's row has to grow by its share in the least times of
    the steps or in their medians; another row counts as grown only where its least time grew.
    """
    before, before_steps, reasons, _ = _train(name, 1)
    after, after_steps, more, named = _train(name, LARGE)
    keys = sorted({key for frame in (*before, *after) for key in frame})
    phases: dict[str, Any] = {}
    wrong: list[str] = []
    for at, phase in enumerate(("forward", "backward")):
        found = []
        for typical in (min, median):

            def grown(key: tuple[str, str], typical: Any = typical) -> float:
                return float(
                    typical([one.get(key, 0.0) for one in after]) - typical([one.get(key, 0.0) for one in before])
                )

            step = float(typical([one[at] for one in after_steps]) - typical([one[at] for one in before_steps]))
            fused = sum(grown(key) for key in keys if key[0] == phase and _has_share(key[1], PATH))
            others = {key[1]: grown(key) for key in keys if key[0] == phase and _is_beside(key[1], PATH)}
            found.append(({"step": step, "row": grown((phase, PATH)), "fused": fused}, others))
        if min(growth["step"] for growth, _ in found) < LEAST_MS:
            continue
        best, _ = max(found, key=lambda one: (one[0]["row"] + one[0]["fused"]) / one[0]["step"])
        phases[phase] = best
        if best["row"] + best["fused"] < GROWN * best["step"]:
            wrong.append(f"{PATH} {phase}: grew by {best['row'] + best['fused']:.2f} ms of {best['step']:.2f} ms")
        for row, ms in found[0][1].items():
            if ms > max(OTHERS * best["step"], OTHERS_MS):
                wrong.append(f"{row} {phase}: grew by {ms:.2f} ms, {PATH} by {best['row']:.2f} ms")
    verdict = "not judged" if not phases else "wrong" if wrong else "right"
    return {"verdict": verdict, "phases": phases, "wrong": wrong, "reasons": [*reasons, *more], "named": named}


def _has_share(row: str, path: str) -> bool:
    """Return whether a row outside the module is that of a kernel which computes a part of the module as well."""
    around, is_fused, parts = row.removesuffix("]").partition("/[fused: ")
    if not is_fused or _is_inside(around, path):
        return False
    modules = [f"{around}.{part.replace('/', '.')}".removeprefix(".") for part in parts.split(" + ")]
    return any(_is_inside(module, path) or _is_inside(path, module) for module in modules)


def _is_beside(row: str, path: str) -> bool:
    """Return whether a row is that of a module, or of a kernel, that has no part of the grown module."""
    around = row.partition("/[")[0]
    if _is_inside(around, path) or _has_share(row, path):
        return False
    return "/[" in row or not _is_inside(path, row)


def _is_inside(path: str, around: str) -> bool:
    return not around or f"{path}.".startswith(f"{around}.")


def _case(name: str, times: int) -> Case:
    batch, before, make, behind = KINDS[name]

    def build() -> Any:
        middle = Tables(times, make) if name == "embedding" else Repeat(times, make)
        parts = OrderedDict({"pre": before(), PATH: middle, "post": behind()})
        return nn.Sequential(parts), batch, squares

    return Case(name, build)


def _train(name: str, times: int) -> tuple[list[Rows], list[tuple[float, float]], list[str], float | None]:
    training, sink = prepare(_case(name, times)), Frames()
    session = open_session(training, sink)
    lengths = [training.step(at)[1:] for at in range(STEPS)]
    session.close()
    frames = [one for one in sink.frames if one.step > WARM]
    return [rows(one) for one in frames], lengths[WARM:], sink.reasons, named_share(frames)


def page(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the result and the table."""
    yield f"{counted(results)} modules grow with their work"
    yield (
        "One module does ten times the work. The milliseconds say how much the phase, the module's row, and the rows "
        "of kernels that compute parts of it and of another module grew. A phase that grew by less than 2 ms is not "
        "judged.\n"
    )
    header = (
        "module",
        "forward: step, row + fused rows",
        "backward: step, row + fused rows",
        "verdict",
        "kernel time with names",
    )
    yield from markdown(header, (_cells(name, one) for name, one in results.items()))
    yield from problems(results)


def _cells(name: str, one: Mapping[str, Any]) -> tuple[str, ...]:
    phases = one.get("phases", {})
    grown = (
        f"{phases[phase]['step']:.1f}, {phases[phase]['row']:.1f} + {phases[phase]['fused']:.1f}"
        if phase in phases
        else "-"
        for phase in ("forward", "backward")
    )
    return name, *grown, one["verdict"], share(one.get("named"))
