"""Gradient accumulation: four micro-batches of 1 ms before each step of the optimizer."""

import kit
import torch
from torch import nn

EXPECTED = {
    "steps": 60,
    "counts": {"slow": 240},
    "claims": [
        {"kind": "micro_steps", "is": 4},
        {"kind": "row", "module": "slow", "phase": "forward", "is": "slow", "times": 4, "tolerance_ms": 0.4},
        {"kind": "calls", "module": "slow", "phase": "forward", "is": 4},
    ],
}

model = kit.Net(slow=kit.Slow(1), last=kit.last())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for i, (inputs, labels) in enumerate(kit.loader(240 * 16, 16)):
    if i % 4 == 0:
        kit.step()
    inputs, labels = inputs.to(kit.DEVICE, non_blocking=True), labels.to(kit.DEVICE, non_blocking=True)
    loss = nn.functional.cross_entropy(model(inputs), labels) / 4
    loss.backward()
    if i % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
kit.save(model)
