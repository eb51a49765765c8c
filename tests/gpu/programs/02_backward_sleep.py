"""A sleeping kernel of 5 ms in the backward of one module, by an autograd.Function."""

import kit
import torch
from torch import nn

EXPECTED = {
    "steps": 120,
    "counts": {"slow": 120},
    "claims": [
        {"kind": "row", "module": "slow", "phase": "backward", "is": "slow"},
        {"kind": "row", "module": "slow", "phase": "forward", "is": 0.0},
        {"kind": "row", "module": "first", "phase": "backward", "is": 0.0},
        {"kind": "row", "module": "last", "phase": "backward", "is": 0.0},
        {"kind": "phase", "phase": "backward", "is": "slow", "tolerance_ms": 0.5},
        {"kind": "found", "rule": "backward-ratio", "module": "slow"},
    ],
}


class SlowGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        with kit.span("slow"):
            kit.sleep(5)
        return grad


class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 256)

    def forward(self, x):
        return torch.relu(SlowGradient.apply(self.linear(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(256, 256)
        self.slow = Slow()
        self.last = nn.Linear(256, 10)

    def forward(self, x):
        return self.last(self.slow(torch.relu(self.first(x))))


kit.calibrate()
torch.manual_seed(0)
model = Net().to(kit.DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(64, 256, device=kit.DEVICE)
labels = torch.randint(0, 10, (64,), device=kit.DEVICE)
criterion = nn.CrossEntropyLoss()
for _ in range(120):
    kit.step()
    optimizer.zero_grad()
    loss = criterion(model(inputs), labels)
    loss.backward()
    optimizer.step()
kit.save([model])
