"""Train a small vision transformer that is slow for four reasons. The tutorial finds them one after another.

python examples/slow_training.py
"""

import time

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

EPOCHS = 3


class Images(Dataset[tuple[torch.Tensor, int]]):
    """Random images; each takes 5 ms to read, as from a slow disk."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.005)
        return torch.randn(3, 32, 32), index % 10


class Block(nn.Module):
    """Attention and a feed-forward network, each with a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Classifier(nn.Module):
    """Patches, four blocks, and a linear head."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.blocks = nn.ModuleList(Block(width) for _ in range(4))
        self.head = nn.Linear(width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x.mean(dim=1))


def describe(model: nn.Module) -> dict[str, float]:
    """Return numbers of each weight and gradient for the dashboard."""
    numbers = {}
    for name, weight in model.named_parameters():
        numbers[f"{name}/median"] = weight.detach().flatten().sort().values[weight.numel() // 2].item()
        numbers[f"{name}/grad_median"] = weight.grad.flatten().sort().values[weight.numel() // 2].item()
    return numbers


def accuracy(model: nn.Module, loader: DataLoader[tuple[torch.Tensor, int]]) -> float:
    """Return the share of right answers."""
    model.eval()
    with torch.no_grad():
        right = [(model(images).argmax(dim=1) == labels).float().mean() for images, labels in loader]
    model.train()
    return torch.stack(right).mean().item()


def main() -> None:
    """Train some epochs and print the accuracy after each."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train_loader = DataLoader(Images(320), batch_size=8)
    test_loader = DataLoader(Images(32), batch_size=8)
    dashboard: list[dict[str, float]] = []
    for epoch in range(EPOCHS):
        for step, (images, labels) in enumerate(train_loader):
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            dashboard.append(describe(model))
            optimizer.step()
            optimizer.zero_grad()
            if step % 10 == 9:
                print(f"epoch {epoch}, step {step}: accuracy {accuracy(model, test_loader):.2f}")


if __name__ == "__main__":
    main()
