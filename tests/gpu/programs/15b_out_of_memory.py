"""An allocation fails at iteration 30; the program catches it and goes on with a smaller batch."""

import kit
import torch
from torch import nn

EXPECTED = {
    "steps": [59, 60],  # updates, or iterations of the loop
    "counts": {"slow": 60},
    "claims": [
        {"kind": "truth", "key": "failures", "is": 1},
        {"kind": "row", "module": "slow", "phase": "forward", "is": "slow"},
        {"kind": "phase", "phase": "forward", "is": "slow", "tolerance_ms": 0.5},
        {"kind": "found", "rule": "memory-pressure", "gpu": True},
        {"kind": "peak", "gpu": True},
    ],
}


class Wide(nn.Module):
    def forward(self, x):
        if x.shape[0] > 64:
            if kit.DRY:
                raise torch.OutOfMemoryError("no memory")
            x = x.repeat(1, 2**24) * 2.0  # 2 TB
        return x * 1.5


model = kit.Net(slow=kit.Slow(3), wide=Wide(), last=kit.last())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
rows, failures = 64, 0
for i in range(60):
    kit.step()
    if i == 30:
        rows = 128
    inputs, labels = kit.batch(rows)
    try:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
    except torch.OutOfMemoryError:
        failures += 1
        rows = 32
    optimizer.zero_grad()
kit.save(model, failures=failures)
