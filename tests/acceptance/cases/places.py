"""Where time belongs: saving by any means, other threads, unusual inputs."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import autoprof

from ..clock import CLOCK, EXCLUDED
from ..judge import Judge
from ..parts import Root, Sleep, batches, sgd, train_step, two_layers
from ..registry import program

PHASES = ("forward", "backward", "optimizer")


def train_and_save(save: Callable[[dict[str, Tensor]], None]) -> Judge:
    """Train, save a state of 120 MB after each twentieth step, and compare what belongs to steps."""
    model = two_layers()
    optimizer = sgd(model)
    state = {f"layer{number}": torch.randn(1_500_000) for number in range(20)}
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for number, batch in enumerate(batches(80), 1):
        train_step(model, optimizer, batch)
        if number % 20 == 0:
            with CLOCK.phase(EXCLUDED):
                save(state)
        CLOCK.step()
    session.close()
    return Judge(session).steps().phases(*PHASES, "other").excluded(relative=0.1)


@program("excluded", "a state saved with safetensors", "safetensors")
def saved_with_safetensors() -> Judge:
    from safetensors.torch import save_file

    return train_and_save(lambda state: save_file(state, "state.safetensors"))


@program("excluded", "a state saved with numpy.savez")
def saved_with_numpy() -> Judge:
    return train_and_save(lambda state: np.savez("state.npz", **{key: one.numpy() for key, one in state.items()}))


@program("excluded", "a state saved with pickle.dump")
def saved_with_pickle() -> Judge:
    def save(state: dict[str, Tensor]) -> None:
        with Path("state.pickle").open("wb", buffering=0) as file:
            pickle.dump({key: one.numpy() for key, one in state.items()}, file)

    return train_and_save(save)


@program("excluded", "a state saved with json.dump")
def saved_with_json() -> Judge:
    numbers = torch.randn(400_000).tolist()

    def save(_state: dict[str, Tensor]) -> None:
        with Path("state.json").open("w") as file:
            json.dump(numbers, file)

    return train_and_save(save)


@program("excluded", "a state saved as a distributed checkpoint, in one process")
def saved_as_a_distributed_checkpoint() -> Judge:
    import torch.distributed.checkpoint as dcp

    return train_and_save(lambda state: dcp.save(state, checkpoint_id="state", no_dist=True))


class Padded(Root):
    """A model of nested tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Sleep(2, 3, "body")

    def forward(self, x: Tensor) -> Any:
        return self.body(x.to_padded_tensor(0.0))  # type: ignore[operator]


@program("throughput", "nested tensors as inputs: no failure, and the true rate or none")
def nested_inputs() -> Judge:
    model = Padded()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for _ in range(60):
        train_step(model, optimizer, torch.nested.nested_tensor([torch.randn(3, 16), torch.randn(5, 16)]))
        CLOCK.step()
    session.close()
    judge = Judge(session).steps().phases(*PHASES).throughput(2, may_be_absent=True)
    return judge.is_true("failures", not judge.summary.skipped, dict(judge.summary.skipped), "none")


class Style(Root):
    """A frozen network that judges an image."""

    def __init__(self) -> None:
        super().__init__()
        self.features = Sleep(3, 4, "features")
        self.requires_grad_(False)

    def forward(self, x: Tensor) -> Any:
        return self.features(x)


@program("steps", "an image is optimised through a frozen network in eval mode: the steps are found")
def optimised_image() -> Judge:
    model = Style().eval()
    image = torch.randn(8, 16, requires_grad=True)
    optimizer = torch.optim.SGD([image], lr=1e-3)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for _ in range(60):
        optimizer.zero_grad()
        loss = model(image).square().mean()
        with CLOCK.phase("backward"):
            loss.backward()
        optimizer.step()
        CLOCK.step()
    session.close()
    return Judge(session).steps().phases("forward", "backward").step_time().excludes_nothing()


class OfDictionary(Root):
    """A model whose input is a dictionary of lists."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Sleep(2, 3, "body")

    def forward(self, batch: Any) -> Any:
        parts = batch["images"] if isinstance(batch, dict) else batch
        return self.body(torch.stack(list(parts)))


def _train_on(make: Callable[[], Any]) -> Judge:
    model = OfDictionary()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for _ in range(60):
        train_step(model, optimizer, make())
        CLOCK.step()
    session.close()
    judge = Judge(session).steps().phases(*PHASES).step_time()
    judge.is_true("failures", not judge.summary.skipped, dict(judge.summary.skipped), "none")
    return judge.throughput(8, may_be_absent=True)


@program("steps", "dictionaries of lists as inputs")
def dictionary_of_lists() -> Judge:
    return _train_on(lambda: {"images": [torch.randn(16) for _ in range(8)], "names": ["a"] * 8})


@program("steps", "generators as inputs: they are not consumed")
def generator_as_input() -> Judge:
    return _train_on(lambda: (torch.randn(16) for _ in range(8)))
