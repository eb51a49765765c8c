"""Small real models, for the promise that observing them changes nothing. Imports nothing of autoprof's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Recurrent(nn.Module):
    """An LSTM on packed sequences, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 5, num_layers=2, dropout=0.2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(10, 1)

    def forward(self, x: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, [3, 2], batch_first=True)
        output, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.head(output)


class Checkpointed(nn.Module):
    """Blocks with dropout, recomputed in backward."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first = nn.Linear(4, 4)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3), nn.GELU()) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


class Tied(nn.Module):
    """An embedding that is the decoder, too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.norm = nn.LayerNorm(4)
        self.decode = nn.Linear(4, 7, bias=False)
        self.decode.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(self.norm(self.embed(x)))


@dataclass
class Pair:
    """An output as a dataclass."""

    left: Tensor
    right: Tensor


class Split(nn.Module):
    """Return a tuple, a dict or a dataclass of views."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> Any:
        left, right = x.chunk(2, dim=-1)
        if self.kind == "dict":
            return {"left": left, "right": right}
        return Pair(left, right) if self.kind == "dataclass" else (left, right)


class Structured(nn.Module):
    """Containers and keywords between the modules, and one that returns its input as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.tuple, self.dict, self.pair = Split("tuple"), Split("dict"), Split("dataclass")
        self.same = nn.Identity()
        self.bilinear = nn.Bilinear(2, 2, 4)

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.tuple(self.same(x))
        x = self.bilinear(left, input2=right)
        parts = self.dict(x)
        pair = self.pair(torch.cat([parts["right"], parts["left"]], dim=-1))
        return pair.left * pair.right


class NoTensor(nn.Module):
    """Return numbers, None and tensors without gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        return {"loss": self.layer(x).sum(), "count": 3, "nothing": None, "index": torch.arange(3)}


def _mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 4), nn.Dropout(0.5), nn.ReLU(inplace=True)
    )


def _conv() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2)
    )


def _transformer() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True), 2)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (_mlp, (3, 4)),
    "conv": (_conv, (2, 2, 8, 8)),
    "lstm": (Recurrent, (2, 3, 4)),
    "transformer": (_transformer, (2, 3, 4)),
    "checkpointed": (lambda: Checkpointed(False), (3, 4)),
    "checkpointed-reentrant": (lambda: Checkpointed(True), (3, 4)),
    "tied": (Tied, ()),
    "structured": (Structured, (3, 4)),
    "no-tensor": (NoTensor, (3, 4)),
}
"""Name → what makes the model, and the shape of its input."""


def make(name: str) -> tuple[nn.Module, Callable[[], Tensor]]:
    """Return a fresh model, always the same, and what draws its next input."""
    torch.manual_seed(3)
    build, shape = MODELS[name]
    model = build()
    return model, (lambda: torch.randn(shape)) if shape else (lambda: torch.randint(0, 7, (2, 3)))


def train(model: nn.Module, draw: Callable[[], Tensor], steps: int, end_step: Callable[[], None]) -> list[Tensor]:
    """Train, and return all that training made: outputs, gradients, parameters, buffers, the random state."""
    torch.manual_seed(4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    made: list[Tensor] = []
    for _ in range(steps):
        output = model(draw())
        loss = output["loss"] if isinstance(output, dict) else output.pow(2).sum()
        made.append(loss.detach().clone() if isinstance(output, dict) else output.detach().clone())
        loss.backward()
        made.extend(p.grad.clone() for p in model.parameters() if p.grad is not None)
        optimizer.step()
        optimizer.zero_grad()
        end_step()
    model.eval()
    with torch.no_grad():
        output = model(draw())
    made.append(output["loss"] if isinstance(output, dict) else output)
    made.extend(value.detach().clone() for value in model.state_dict().values())
    made.append(torch.get_rng_state())
    return made
