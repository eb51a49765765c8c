"""What people do with a model in the middle of a run: averages, checkpoints, moves, new and replaced layers."""

import pickle
import subprocess
import sys
from pathlib import Path

import torch
from attached import hooks_of
from engine_laws import Watched, check_laws, count, everything
from torch import Tensor, nn

from autoprof import Phase
from autoprof.testing import FakeClock


def mlp() -> nn.Sequential:
    """Return the same model each time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 1))


NAMES = {"Sequential", "0", "1", "2", "3"}


def test_parameters_that_are_replaced_are_followed() -> None:
    """``load_state_dict(assign=True)``, and a cast to another type and back."""
    model = mlp()
    with Watched(model) as watched:
        for change in (
            lambda: model.load_state_dict(mlp().state_dict(), assign=True),
            model.double,
            lambda: model.to(torch.float32),
            lambda: model.to("cpu", non_blocking=True),
            lambda: model.requires_grad_(True),
            lambda: model.share_memory(),
            lambda: model.apply(lambda module: None),
            lambda: model.to(memory_format=torch.contiguous_format),
        ):
            change()
            dtype = next(model.parameters()).dtype
            model(torch.arange(8.0).reshape(4, 2).to(dtype)).sum().backward()
            watched.step()
    for frame in watched.sink.frames:
        check_laws(frame)
        assert count(frame, Phase.BACKWARD) == dict.fromkeys(NAMES, 1)


def test_a_model_made_on_meta_can_be_instrumented_before_it_gets_its_memory() -> None:
    """``to_empty`` keeps the modules, so it keeps their hooks."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with Watched(model) as watched:
        model.to_empty(device="cpu")
        for parameter in model.parameters():
            nn.init.ones_(parameter)
        model(torch.ones(1, 2)).sum().backward()
        watched.step()
    assert count(watched.sink.frames[0], Phase.BACKWARD) == {"Sequential": 1, "0": 1, "1": 1}


class Adapter(nn.Module):
    """A layer around a layer, as LoRA makes it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * self.scale


def test_layers_wrapped_replaced_and_removed_after_instrumenting() -> None:
    """What was chosen is timed wherever it goes; what is new is not; what is gone has no hooks after close."""
    model = mlp()
    first, last = model[0], model[3]
    with Watched(model) as watched:
        model[0] = Adapter(model[0])
        model[3] = nn.Linear(3, 2)
        model.insert(2, nn.Dropout(0.0))
        model(torch.arange(8.0).reshape(4, 2)).sum().backward()
        watched.step()
        model[0] = model[0].inner
        del model[4]
        model(torch.arange(8.0).reshape(4, 2)).sum().backward()
        watched.step()
    assert count(watched.sink.frames[0], Phase.BACKWARD) == {"Sequential": 1, "0": 1, "1": 1, "2": 1}
    assert count(watched.sink.frames[1], Phase.FORWARD) == {"Sequential": 1, "0": 1, "1": 1, "2": 1}
    for module in (*model.modules(), first, last):
        assert not any(hooks_of(module).values())


LOAD = """
import pickle, sys
sys.modules["autoprof"] = None  # importing it raises
import torch
for name in sys.argv[1:]:
    way = name.split("-")[1]
    with open(name, "rb") as file:
        model = torch.load(file, weights_only=False) if way == "torch" else pickle.load(file)
    model(torch.ones(2, 2)).sum().backward()
    torch.save(model, name + "-again")
"""


def test_a_model_saved_in_the_middle_of_a_sampled_run_loads_without_autoprof(tmp_path: Path) -> None:
    """By ``torch.save`` and by ``pickle``, with memory readings, in steps that are recorded and in those that are not;
    what the other process saves again loads here."""
    model = mlp()
    targets = [{"match": ".*", "memory": True}]
    config = everything(targets=targets, step="auto", sample={"every": 2, "warmup": 0, "budget": None})
    with Watched(model, config=config, clock=FakeClock(tick_ns=1)) as watched:
        for step in range(2):
            torch.save(model, tmp_path / f"{step}-torch")
            (tmp_path / f"{step}-pickle").write_bytes(pickle.dumps(model))
            watched.step()
    names = [f"{step}-{way}" for step in range(2) for way in ("torch", "pickle")]
    subprocess.run([sys.executable, "-W", "error", "-c", LOAD, *names], check=True, timeout=120, cwd=tmp_path)
    for name in names:
        loaded = torch.load(tmp_path / f"{name}-again", weights_only=False)
        assert torch.equal(loaded[0].weight, model[0].weight)
        loaded(torch.ones(2, 2))
