"""Train with a dataset that reads slowly: the report names the wait for data, and `--workers 8` removes it.

python examples/slow_loader.py
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import autoprof


class SlowImages(Dataset[tuple[torch.Tensor, int]]):
    """Random images; each takes 4 ms to read, as from a slow disk."""

    def __len__(self) -> int:
        return 1600

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.004)
        return torch.randn(3, 32, 32), index % 10


def main() -> None:
    """Train one epoch of 200 steps."""
    parser = argparse.ArgumentParser(description="Train with a dataset that reads slowly.")
    parser.add_argument("--workers", type=int, default=0, help="processes that read images (default: 0)")
    workers = parser.parse_args().workers
    torch.set_num_threads(1)  # leave the other processors to the workers
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.Flatten(), nn.Linear(32768, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(SlowImages(), batch_size=8, num_workers=workers)
    criterion = nn.CrossEntropyLoss()
    with autoprof.instrument(model, optimizer=optimizer):
        for images, labels in loader:
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
