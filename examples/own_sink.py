"""Send each step to a place of your own: a sink is any object with ``write(frame)`` and ``close(summary)``.

python examples/own_sink.py
"""

import torch
from torch import nn

import autoprof


class SlowSteps:
    """Keep the three slowest steps and print them at the end."""

    def __init__(self) -> None:
        self.slowest: list[tuple[int, int]] = []

    def write(self, frame: autoprof.StepFrame) -> None:
        """Called on the training thread after each recorded step: quick, and without waiting."""
        self.slowest = sorted([*self.slowest, (frame.duration_ns, frame.step)], reverse=True)[:3]

    def close(self, summary: autoprof.Summary) -> None:
        """Called once, at the end of the run."""
        print(f"{summary.steps} steps recorded; the slowest:")
        for duration_ns, step in self.slowest:
            print(f"  step {step}: {duration_ns / 1e6:.3f} ms")


model = nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with autoprof.instrument(
    model, {"sinks": {}, "sample": {"budget": None}}, optimizer=optimizer, sinks=[SlowSteps()]
) as session:
    for step in range(40):
        batch = torch.randn(16384 if step == 17 else 64, 256)
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        session.step()
