"""A pageable copy of 64 MB to the device in each step, and a kernel of 3 ms."""

import kit
import torch
from torch import nn

EXPECTED = {
    "steps": 60,
    "counts": {"copy": 60, "slow": 60},
    "claims": [
        {"kind": "phase", "phase": "h2d", "is": "copy", "gpu": True},
        {"kind": "top", "rule": "h2d-copy", "gpu": True},
        {"kind": "row", "module": "slow", "phase": "forward", "is": "slow"},
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


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.slow = Slow()
        self.last = nn.Linear(256, 10)

    def forward(self, x):
        return self.last(self.slow(x[:, :256]))


kit.calibrate()
torch.manual_seed(0)
model = Net().to(kit.DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = [torch.ones(64, 262144) for _ in range(2)]  # 64 MiB each
labels = torch.randint(0, 10, (64,), device=kit.DEVICE)
for i in range(60):
    kit.step()
    with kit.span("copy"):
        inputs = batches[i % 2].to(kit.DEVICE)
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
kit.save([model])
