"""Name the parts of a model by rules, and time functions and blocks outside it.

python examples/name_the_parts.py
"""

import torch
from torch import nn

import autoprof

CONFIG = {
    "targets": [
        {"match": r"blocks\.(\d+)", "name": r"Encoder/Block\1"},  # a regex over the module's path; `\1` is its group
        {"match": r"blocks\.\d+\.attention", "name": "Encoder/Attention"},  # one name for the attention of all blocks
        {"type": "Linear", "match": "head", "name": "Head"},
    ],
    "sinks": {"jsonl": {}, "log": {}},
}


class Block(nn.Module):
    """Attention and a feed-forward network, each with a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return x + self.feed_forward(x)


class Encoder(nn.Module):
    """Three blocks and a linear head."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.head = nn.Linear(width, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x).mean(dim=1)


@autoprof.timed("Loss/Smooth")
def smooth_loss(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """A function of the program: timed wherever it is called."""
    return nn.functional.smooth_l1_loss(prediction, target)


def main() -> None:
    """Train 30 steps and print the five longest names."""
    torch.manual_seed(0)
    model = Encoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with autoprof.instrument(model, CONFIG, optimizer=optimizer) as session:
        for _ in range(30):
            batch, target = torch.randn(8, 32, 64), torch.randn(8, 8)
            loss = smooth_loss(model(batch), target)
            with autoprof.span("Loss/Penalty"):  # a block of the program
                loss = loss + 1e-4 * sum(parameter.square().sum() for parameter in model.parameters())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            session.log(loss=loss.detach(), samples=len(batch))
            session.step()
        summary = session.summary()
    longest = sorted(summary.rows, key=lambda row: row.total_ns, reverse=True)[:5]
    for row in longest:
        print(f"{row.name:20} {row.phase.value:10} {row.mean_ns / 1e6:8.3f} ms a step")
    print(f"records: {session.folder}")


if __name__ == "__main__":
    main()
