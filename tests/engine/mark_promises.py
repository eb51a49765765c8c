"""Do the same work on a bare and on a recorded model, and compare everything that a program can see."""

import copy
import io
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from bits import describe
from engine_laws import Watched, check_laws, count, everything
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer

from autoprof import Phase, StepFrame

OWNERS: tuple[Any, ...] = (
    torch, torch._C, torch.Tensor, torch.autograd, torch.autograd.graph, torch.nn.functional, torch.utils.checkpoint,
    torch.jit, nn.Module, nn.Linear, nn.Sequential, nn.TransformerEncoderLayer, torch_module, torch.optim.Optimizer,
    torch_optimizer,
)  # fmt: skip
"""Modules and classes of torch whose functions a session may replace until it is closed."""


LEFT_BY_TORCH = {"__overloads__", "_is_torch_compile"}
"""Attributes that ``torch.jit.script`` and ``torch.compile`` put on a bare model."""


def two_layers() -> nn.Sequential:
    """Return a model of four modules, itself included: 0, 1 and 2."""
    return nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))


def batch() -> Tensor:
    """Return the input of every test, made anew."""
    return torch.arange(6.0).reshape(2, 3) / 6


def _described(name: str, value: Any) -> Any:
    if name != "training" and (value is None or isinstance(value, bool)):
        return value
    if isinstance(value, dict) and "hooks" in name:
        return [_described("", hook) for hook in value.values()]
    if callable(value) and not isinstance(value, nn.Module):
        return type(value).__name__, getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    return type(value).__name__


def entries(model: nn.Module) -> dict[str, Any]:
    """Describe the attributes and the hooks of every module of a model."""
    return {
        f"{name} {type(module).__name__}": {
            key: _described(key, value) for key, value in vars(module).items() if key not in LEFT_BY_TORCH
        }
        for name, module in model.named_modules()
    }


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the modules and attributes in which two descriptions differ."""
    return [
        f"{name}: {key}: {was!r} -> {now!r}"
        for name in {**before, **after}
        for key in {**before.get(name, {}), **after.get(name, {})}
        if (was := before.get(name, {}).get(key)) != (now := after.get(name, {}).get(key))
    ]


def functions() -> dict[str, Any]:
    """Return torch's own functions, classes and tables of hooks as they are now."""
    found: dict[str, Any] = {}
    for owner in OWNERS:
        for name, value in vars(owner).items():
            if callable(value) or isinstance(value, (classmethod, staticmethod, property)):
                found[f"{owner.__name__}.{name}"] = value
            elif name.endswith("_hooks") and isinstance(value, dict):
                found[f"{owner.__name__}.{name}"] = list(value.values())
    return found


def replaced_functions(before: dict[str, Any]) -> list[str]:
    """Return the names whose values in torch are not those of before."""
    now = functions()
    return [name for name, value in before.items() if now.get(name) is not value and now.get(name) != value]


@contextmanager
def recorded(model: nn.Module, **changes: Any) -> Iterator[Watched]:
    """Record every module of a model; prove that closing leaves torch and the model's modules as they were."""
    before, own = functions(), entries(model)
    with Watched(model, config=everything(**changes)) as watched:
        yield watched
    left = changed(own, entries(model))
    assert not left, left
    check_closed(watched, before)


def check_closed(watched: Watched, before: dict[str, Any]) -> None:
    """Assert that a closed session put torch's functions back, counted no failure, and kept the laws."""
    replaced = replaced_functions(before)
    assert not replaced, replaced
    summary = watched.sink.summary
    assert summary is not None
    assert not [reason for reason in summary.skipped if "fail" in reason], summary.skipped
    for frame in watched.sink.frames:
        check_laws(frame)


def as_bare(
    make: Callable[[], nn.Module], work: Callable[[nn.Module], Any], steps: int = 2, **changes: Any
) -> list[StepFrame]:
    """Assert that steps give equal bits and leave an equal model with and without a session; return the frames."""
    results, models, frames = [], [], []
    for record in (False, True):
        torch.manual_seed(0)
        model, seen, before = make(), [], functions()
        with ExitStack() as stack:
            watched = stack.enter_context(Watched(model, config=everything(**changes))) if record else None
            for _ in range(steps):
                seen.append(describe(work(model)))
                seen.append(describe({name: p.grad for name, p in model.named_parameters()}))
                seen.append(describe(model.state_dict()))
                seen.append(describe(torch.get_rng_state()))
                if watched:
                    watched.step()
            if watched:
                frames = watched.frames
        if watched:
            check_closed(watched, before)
        results.append(seen)
        models.append(entries(model))
    for bare, found in zip(*results, strict=True):
        assert found == bare, (found, bare)
    left = changed(*models)
    assert not left, left
    return frames


def forwards(frame: StepFrame) -> Counter[str]:
    """Count the forward calls of a step by name."""
    return count(frame, Phase.FORWARD)


def backwards(frame: StepFrame) -> Counter[str]:
    """Count the backward spans of a step by name."""
    return count(frame, Phase.BACKWARD)


def train_step(model: nn.Module) -> Tensor:
    """Run forward and backward; return the output."""
    output = model(batch())
    output.square().sum().backward()
    return output


ALL = {"Sequential": 1, "0": 1, "1": 1, "2": 1}
"""What one call of ``two_layers`` counts."""


def saved_and_loaded(model: nn.Module) -> nn.Module:
    """Return what ``torch.load`` reads of ``torch.save(model)``."""
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    loaded: nn.Module = torch.load(buffer, weights_only=False)
    return loaded


def of_its_state_dict(model: nn.Module) -> nn.Module:
    """Return a new model that loaded the state dict."""
    loaded = two_layers()
    loaded.load_state_dict(model.state_dict())
    return loaded


def averaged(model: nn.Module) -> nn.Module:
    """Return the copy that torch's weight averaging makes."""
    kept: nn.Module = torch.optim.swa_utils.AveragedModel(model).module
    return kept


COPIERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "copy.deepcopy": copy.deepcopy,
    "deepcopy of a deepcopy": lambda model: copy.deepcopy(copy.deepcopy(model)),
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "torch.save": saved_and_loaded,
    "state_dict": of_its_state_dict,
    "AveragedModel": averaged,
}
"""Name → what copies a model of ``two_layers``."""


class Counting:
    """A backend of ``torch.compile`` that counts the graphs it is given, and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[str] = []

    def __call__(self, graph: Any, _inputs: Any) -> Any:
        self.graphs.append(graph.code)
        return graph


FUSED = ["_transformer_encoder_layer_fwd", "_native_multi_head_attention"]
"""Functions of torch that run a layer as a whole where nothing watches its parts."""


def count_fused_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the names of torch's fused functions as they are called."""
    calls: list[str] = []

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            return function(*args, **kwargs)

        return call

    for name in FUSED:
        monkeypatch.setattr(torch, name, counted(name, getattr(torch, name)))
    return calls


def counting_steps(work: Callable[[Any, int], Any]) -> Callable[[nn.Module], Any]:
    """Return work that is also given the number of the step of its model, from 1 on."""
    steps: dict[int, int] = {}
    kept: list[nn.Module] = []  # so that no other model gets its id

    def counted(model: nn.Module) -> Any:
        kept.append(model)
        steps[id(model)] = steps.get(id(model), 0) + 1
        return work(model, steps[id(model)])

    return counted
