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


class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 256)

    def forward(self, x):
        with kit.span("slow"):
            kit.sleep(3)
        return torch.relu(self.linear(x))


class Wide(nn.Module):
    def forward(self, x):
        if x.shape[0] > 64:
            if kit.DRY:
                raise torch.OutOfMemoryError("no memory")
            x = x.repeat(1, 2**24) * 2.0  # 2 TB
        return x * 1.5


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.slow = Slow()
        self.wide = Wide()
        self.last = nn.Linear(256, 10)

    def forward(self, x):
        return self.last(self.wide(self.slow(x)))


kit.calibrate()
torch.manual_seed(0)
model = Net().to(kit.DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch, failures = 64, 0
for i in range(60):
    kit.step()
    if i == 30:
        batch = 128
    inputs = torch.randn(batch, 256, device=kit.DEVICE)
    labels = torch.randint(0, 10, (batch,), device=kit.DEVICE)
    try:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
    except torch.OutOfMemoryError:
        failures += 1
        batch = 32
    optimizer.zero_grad()
kit.save([model], failures=failures)
