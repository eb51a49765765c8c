"""The rule ``repeated-calls``: results are compared, so that only calls that compute the same again are found."""
# mypy: allow-untyped-calls

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

from autoprof.base.summary import Finding
from autoprof.diagnose import RunFacts
from autoprof.testing import FakeClock, open_session
from tests.defects.training import WIDTH, Layer

STEPS = 12
CONFIG: dict[str, Any] = {
    "targets": [{"match": "(encoder|decoder)?"}, {"match": r"encoder\.\d"}],
    "sinks": {},
    "flops": "off",
}
Losses = Callable[[nn.Module, Tensor], Sequence[Tensor]]
"""Returns the losses of a step, each of which has a backward pass."""


def two_towers(dropout: float = 0.0) -> nn.Module:
    """Return an encoder of two layers and a decoder of one, each as long as the others."""
    clock = FakeClock()
    encoder = nn.Sequential(Layer(clock), nn.Dropout(dropout), Layer(clock))
    return nn.Sequential(OrderedDict(encoder=encoder, decoder=Layer(clock)))


def found(losses: Losses, model: nn.Module | None = None, targets: Sequence[Any] = CONFIG["targets"]) -> list[Finding]:
    """Return what a training by these losses is told, abstentions left out."""
    model = model or two_towers()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with open_session(model, {**CONFIG, "targets": targets}, clock=model.decoder.clock, optimizer=optimizer) as session:
        for _ in range(STEPS):
            for loss in losses(model, torch.randn(4, WIDTH)):
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            session.step()
    return [one for one in session.summary().findings if one.severity != "info"]


def encode(times: int, changed: Callable[[Tensor], Tensor] = lambda x: x) -> Losses:
    """Return a loss that encodes a batch, each time ``changed`` from the time before, and decodes the sum."""

    def losses(model: Any, x: Tensor) -> Sequence[Tensor]:
        total = torch.zeros(4, WIDTH)
        for _ in range(times):
            total, x = total + model.encoder(x), changed(x)
        return [model.decoder(total).mean()]

    return losses


def test_the_outermost_module_that_computes_the_same_again_is_named() -> None:
    """Two of three calls of 120 ms forward and 240 ms backward, in a step of 1260 ms with the decoder."""
    (finding,) = found(encode(3))
    assert (finding.rule, finding.name, finding.severity) == ("repeated-calls", "encoder", "critical")
    assert finding.why.startswith("encoder returns in 2 of 3 calls of a step the values that an earlier call")
    assert "720.0 ms (57.1 % of the step)" in finding.why
    assert finding.gain_ns == 720_000_000


def test_a_call_for_a_metric_saves_no_backward() -> None:
    def losses(model: Any, x: Tensor) -> Sequence[Tensor]:
        loss = model.decoder(model.encoder(x)).mean()
        with torch.no_grad():
            model.encoder(x)
        return [loss]

    finding = next(one for one in found(losses) if one.rule == "repeated-calls")
    assert finding.gain_ns == 120_000_000


def test_the_whole_model_gains_the_time_of_its_modules() -> None:
    def losses(model: Any, x: Tensor) -> Sequence[Tensor]:
        model(x)
        return [model(x).mean()]

    finding = next(one for one in found(losses) if one.rule == "repeated-calls")
    assert finding.why.startswith("Sequential returns in 1 of 2 calls")
    assert (finding.name, finding.gain_ns) == (None, 180_000_000)


class Weight(nn.Module):
    """The parametrization of a weight, that takes as long as a layer."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, weight: Tensor) -> Tensor:
        return self.layer(weight)  # type: ignore[no-any-return]


def test_a_parameter_that_is_computed_again_in_each_call_is_named() -> None:
    """Though each call around it has another input, and another result."""
    model = two_towers()
    parametrize.register_parametrization(model.encoder[0].linear, "weight", Weight(Layer(model.decoder.clock)))
    config = [*CONFIG["targets"], {"match": ".*parametrizations.*"}]

    finding = next(one for one in found(encode(2, swap), model, config) if one.rule == "repeated-calls")
    assert finding.why.startswith("encoder/0/linear/parametrizations/weight returns in 1 of 2 calls")
    assert "parametrize.cached()" in finding.next


def accumulate(model: Any, x: Tensor) -> Sequence[Tensor]:
    """Return the losses of two micro-batches that are the same, as a benchmark makes them."""
    return [model.decoder(model.encoder(x)).mean() for _ in range(2)]


def recompute(model: Any, x: Tensor) -> Sequence[Tensor]:
    """Return a loss under activation checkpointing."""
    return [model.decoder(checkpoint(model.encoder, x, use_reentrant=False)).mean()]


def recompute_reentrant(model: Any, x: Tensor) -> Sequence[Tensor]:
    """Return a loss under activation checkpointing of the older kind."""
    return [model.decoder(checkpoint(model.encoder, x.requires_grad_(), use_reentrant=True)).mean()]


def silent(model: Any, x: Tensor) -> Sequence[Tensor]:
    """Return a loss of calls that return nothing but zeros."""
    return [model.decoder(model.encoder(0 * x) + model.encoder(0 * x)).mean()]


def swap(x: Tensor) -> Tensor:
    """Change the order of the batch."""
    return x.roll(1, dims=0)


def change_one(x: Tensor) -> Tensor:
    """Change one value of the batch."""
    return x.index_put((torch.tensor(3), torch.tensor(5)), torch.tensor(0.1), accumulate=True)


@pytest.mark.parametrize(
    "losses", [accumulate, recompute, recompute_reentrant, silent, encode(2, swap), encode(2, change_one), encode(1)]
)
def test_other_calls_are_no_finding(losses: Losses) -> None:
    model = two_towers()
    for layer in model.modules():
        if isinstance(layer, nn.Linear) and losses is silent:
            nn.init.zeros_(layer.bias)
    assert "repeated-calls" not in [one.rule for one in found(losses, model)]


class Gated(nn.Module):
    """A block whose gate is zero at first, so that it returns what it is given."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer, self.gate = layer, nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.gate * self.layer(x)  # type: ignore[no-any-return]


def test_a_block_that_changes_nothing_yet_repeats_nothing() -> None:
    """One block over the depth, as in a universal transformer."""
    model = two_towers()
    model.encoder = Gated(Layer(model.decoder.clock))

    def losses(model: Any, x: Tensor) -> Sequence[Tensor]:
        for _ in range(3):
            x = model.encoder(x)
        return [model.decoder(x).mean()]

    assert "repeated-calls" not in [one.rule for one in found(losses, model, [{"match": "(encoder|decoder)?"}])]


def test_two_calls_with_dropout_are_no_repetition() -> None:
    """SimCSE encodes each sentence twice, to compare the two."""
    assert not found(encode(2), two_towers(dropout=0.1))


def test_random_numbers_and_results_are_those_of_a_run_without_a_session() -> None:
    def last(record: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = two_towers(dropout=0.1)
        if record:
            found(encode(2), model)
        else:
            optimizer = torch.optim.SGD(model.parameters(), 1e-3)
            for _ in range(STEPS):
                encode(2)(model, torch.randn(4, WIDTH))[0].backward()
                optimizer.step()
                optimizer.zero_grad()
        return [*model.parameters(), torch.get_rng_state()]

    assert all(map(torch.equal, last(True), last(False)))


def test_the_facts_of_an_older_run_are_read() -> None:
    facts = RunFacts().to_dict()
    del facts["repeated"]
    assert RunFacts.from_dict(facts) == RunFacts()
