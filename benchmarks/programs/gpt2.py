"""Train a GPT-2 for some steps: bare, or with one line of autoprof (``--autoprof``)."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn


def make(sizes: tuple[int, ...]) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[], object]]:
    """Return the GPT-2 of transformers, or one in plain torch of the same size, with its optimizer and its step."""
    layers, width, heads, vocabulary, batch, length = sizes
    model: Any
    if has_transformers():
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(
            n_layer=layers, n_embd=width, n_head=heads, vocab_size=vocabulary, n_positions=length, use_cache=False
        )
        model = GPT2LMHeadModel(config)

        def loss(tokens: Tensor) -> Tensor:
            found: Tensor = model(input_ids=tokens[:, :-1], labels=tokens[:, :-1]).loss
            return found
    else:
        from benchmarks.gpt import SmallGPT

        model = SmallGPT(vocabulary=vocabulary, context=length, width=width, layers=layers, heads=heads)
        model.head.weight = model.tokens.weight  # GPT-2's head has the weights of its embedding
        loss = model.loss
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        tokens = torch.randint(vocabulary, (batch, length + 1))
        loss(tokens).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step


def has_transformers() -> bool:
    """Return whether transformers is installed."""
    return find_spec("transformers") is not None


def main() -> None:
    """Train for the steps of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="4,256,8,8192,4,64", help="layers,width,heads,vocabulary,batch,length")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--autoprof", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    model, _, step = make(tuple(map(int, options.sizes.split(","))))
    if options.autoprof:
        import autoprof

        autoprof.instrument(model)
    for _ in range(options.steps):
        step()


if __name__ == "__main__":
    main()
