"""Train a GPT of GPT-2's form for some steps: bare, or with one line of autoprof (``--autoprof``)."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import nn

from benchmarks.gpt import SmallGPT


def make(sizes: tuple[int, ...]) -> tuple[nn.Module, Callable[[], object]]:
    """Return the model and its step; sizes are layers, width, heads, vocabulary, batch and length."""
    layers, width, heads, vocabulary, batch, length = sizes
    model = SmallGPT(vocabulary=vocabulary, context=length, width=width, layers=layers, heads=heads)
    model.head.weight = model.tokens.weight  # GPT-2's head has the weights of its embedding
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        model.loss(torch.randint(vocabulary, (batch, length + 1))).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return model, step


def main() -> None:
    """Train for the steps of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", required=True, help="layers,width,heads,vocabulary,batch,length")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--autoprof", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    model, step = make(tuple(map(int, options.sizes.split(","))))
    if options.autoprof:
        import autoprof

        autoprof.instrument(model)
    for _ in range(options.steps):
        step()


if __name__ == "__main__":
    main()
