"""The log of PyTorch's MNIST example and its many copies: ``Train Epoch: 1 [640/60000 (1%)]  Loss: 2.309069``.

Source of the lines: ``train`` in mnist/main.py, vae/main.py and siamese_network/main.py of pytorch/examples, and in
train.py of weiaicunzai/pytorch-cifar100. The counter is of samples of the epoch, so the records are numbered.
"""

from __future__ import annotations

from typing import Final

from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="pytorch examples",
    record=r"\bTrain(?:ing)? Epoch: \d+ \[\d+/\d+(?: \(\d+%\))?\]\s+Loss: ",
    unnamed=((r"Epoch: (\d+) \[", "epoch"), (r"Epoch: \d+ \[(\d+)/", "samples")),
    weight=1.3,
)
