"""Modules that are trained and never called are said; their time is in the module around them."""

import pytest
import torch
from torch import nn

import autoprof
from autoprof.testing import ListSink


class Block(nn.Sequential):
    """A block with a ``forward`` of its own."""

    def forward(self, x):
        return super().forward(x) + x


class Layer(nn.Linear):
    """A layer of the program's own class."""


class Pair(nn.Module):
    """Two layers, run as the test says."""

    def __init__(self, run):
        super().__init__()
        self.a = Block(nn.Linear(2, 2))
        self.b = Layer(2, 2)
        self.run = run

    def forward(self, x):
        return self.run(self, x)


def notes(run, *, steps=5, match=r"\w+", frozen=False, compiled=False):
    """Train for some steps; return the notes on uncalled modules."""
    model = Pair(run)
    if frozen:
        model.a.requires_grad_(False)
    if compiled:
        model.a = torch.compile(model.a, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    config = {"targets": [{"match": match}], "sinks": {}, "sample": {"budget": None}}
    session = autoprof.instrument(model, config, optimizer=optimizer, sinks=[ListSink()])
    for _ in range(steps):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    session.close()
    return [note for note in session.summary().notes if "never called" in note]


def test_a_forward_that_is_called_directly():
    """The note names the module and says what to do."""
    (note,) = notes(lambda model, x: model.b.forward(model.a(x)))
    assert note.startswith("model: trained, but never called: b. Either .forward() is called directly")
    assert "(call the module itself)" in note


def test_a_module_of_which_only_the_inside_is_called():
    """The calls inside it show that it ran."""
    (note,) = notes(lambda model, x: model.b(model.a.forward(x)), match=".*", frozen=True)
    assert "never called: a." in note


@pytest.mark.parametrize(
    "run",
    [lambda model, x: model.b(model.a(x)), lambda model, x: model.a(x), lambda model, x: model.a(model.a.forward(x))],
    ids=["called", "unused", "called once"],
)
def test_what_is_called_or_unused_is_not_named(run):
    """An unused module has no time that could be missed."""
    assert notes(run) == []


def test_a_projection_that_torch_uses_without_a_call_is_not_named():
    """``nn.MultiheadAttention`` reads the weights of its ``out_proj``: nothing in the program can be changed."""

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(2, 1)

        def forward(self, x):
            return self.attention(x, x, x)[0]

    model = Attention()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    config = {"targets": [{"match": ".*"}], "sinks": {}, "sample": {"budget": None}}
    session = autoprof.instrument(model, config, optimizer=optimizer, sinks=[ListSink()])
    for _ in range(5):
        model(torch.ones(1, 1, 2)).sum().backward()
        optimizer.step()
    session.close()
    assert not [note for note in session.summary().notes if "never called" in note]


def train(model, **config):
    """Train for some steps, the given batch or tokens; return the notes on uncalled modules."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    config = {"sinks": {}, "sample": {"budget": None}, **config}
    session = autoprof.instrument(model, config, optimizer=optimizer, sinks=[ListSink()])
    for _ in range(8):
        model(torch.tensor([[1, 2]])).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    session.close()
    return [note for note in session.summary().notes if "never called" in note]


class Tied(nn.Module):
    """Three embeddings with one weight, as in T5: only those of the encoder and the decoder are called."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(4, 2)
        self.encoder, self.decoder = (nn.ModuleDict({"embed_tokens": nn.Embedding(4, 2)}) for _ in range(2))
        for part in (self.encoder, self.decoder):
            part["embed_tokens"].weight = self.shared.weight

    def forward(self, tokens):
        return self.encoder["embed_tokens"](tokens) + self.decoder["embed_tokens"](tokens)


ALL = [{"match": ".*"}]


@pytest.mark.parametrize("config", [{}, {"targets": ALL}, {"targets": [{"match": "shared"}]}])
def test_an_owner_of_a_tied_weight_is_not_named_where_another_is_called(config):
    """The calls of the others change the weight; where they are not recorded, they may."""
    assert train(Tied(), **config) == []


class OneByOne(nn.Module):
    """A backbone whose layers are called one by one, as in torchvision's SSD."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(4, 2)
        self.features = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.features:
            x = layer(x)
        return x


@pytest.mark.parametrize("config", [{}, {"targets": ALL}])
def test_a_sequential_is_not_named_where_its_layers_are_called(config):
    """No time is missed: a Sequential does nothing but call its layers."""
    assert train(OneByOne(), **config) == []


def test_a_model_of_which_no_module_is_called():
    """The note says which calls are seen."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    session = autoprof.instrument(model, {"sinks": {}}, optimizer=optimizer, sinks=[ListSink()])
    for _ in range(5):
        model.forward(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    session.close()
    assert any(note.startswith("no module of the model was called") for note in session.summary().notes)
