"""Observing changes nothing that the zoo does not look at: steps that end by themselves, files, the collector."""

import gc
import io
from typing import Any

import pytest
import torch
from engine_laws import Watched, check_laws, everything
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    """Attention with dropout under a normalised head, checkpointed in one form or the other, or not at all."""

    def __init__(self, reentrant: bool | None = None) -> None:
        super().__init__()
        self.body = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True)
        self.norm, self.head, self.reentrant = nn.BatchNorm1d(3), nn.Linear(4, 2), reentrant

    def forward(self, x: Tensor) -> Any:
        hidden = self.body(x) if self.reentrant is None else checkpoint(self.body, x, use_reentrant=self.reentrant)
        return self.head(self.norm(hidden))


def make(reentrant: bool | None = None) -> nn.Module:
    """Return a fresh model, always the same."""
    torch.manual_seed(3)
    return Net(reentrant)


def batch() -> Tensor:
    """Return the next input."""
    return torch.randn(2, 3, 4, requires_grad=True)


def train(model: nn.Module) -> list[bytes]:
    """Train three steps; return the bits of all that training made, and of the random state."""
    torch.manual_seed(4)
    optimizer, made = torch.optim.Adam(model.parameters(), lr=0.01), list[Tensor]()
    for _ in range(3):
        output = model(batch())
        output.pow(2).sum().backward()
        made += [output.detach().clone(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
        optimizer.step()
        optimizer.zero_grad()
    made += [*model.state_dict().values(), torch.get_rng_state()]
    return [value.numpy().tobytes() for value in made]


def test_training_whose_steps_end_by_themselves_is_the_same_to_the_last_bit() -> None:
    """Outputs, gradients, parameters, buffers, random state, every module in all phases."""
    expected, model = train(make()), make()
    with Watched(model, config=everything(step="auto")) as watched:
        assert train(model) == expected
    assert len(watched.sink.frames) == 3
    for frame in watched.sink.frames:
        check_laws(frame)


def test_the_state_dict_is_unchanged() -> None:
    """Keys, metadata and values; it loads with ``weights_only``."""
    model = make()
    before = model.state_dict()
    with Watched(model):
        during = model.state_dict()
        assert list(during) == list(before)
        assert during._metadata == before._metadata
        assert all(torch.equal(during[key], before[key]) for key in before)
        buffer = io.BytesIO()
        torch.save(during, buffer)
        buffer.seek(0)
        assert list(torch.load(buffer, weights_only=True)) == list(before)
        assert repr(model) == repr(make())


@pytest.mark.parametrize("reentrant", [None, False, True])
def test_a_step_leaves_no_reference_cycle(reentrant: bool | None) -> None:
    """The collector finds nothing of ours, so no step is slow for our sake."""
    model = make(reentrant)
    with Watched(model) as watched:

        def step() -> None:
            model(batch()).sum().backward()
            watched.session.log(loss=1.0)
            watched.step()
            watched.session.summary()

        for _ in range(3):
            step()
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for _ in range(3):
                step()
            gc.collect()
            ours = [
                found
                for found in gc.garbage
                if type(found).__module__.startswith("autoprof")
                or getattr(found, "__module__", None) == "autoprof.capture.hooks.module_hooks"
            ]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert ours == []
