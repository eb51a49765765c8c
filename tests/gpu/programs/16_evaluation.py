"""An evaluation of ten batches after each twentieth training step."""

import kit
import torch
from torch import nn

EXPECTED = {
    "steps": 100,
    "counts": {"slow": 150},
    "claims": [
        {"kind": "row", "module": "slow", "phase": "forward", "is": "slow"},
        {"kind": "excluded", "name": "validation", "is": "evaluation"},
        {"kind": "calls", "module": "slow", "phase": "forward", "is": 1},
    ],
}


class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 256)

    def forward(self, x):
        with kit.span("slow"):
            kit.sleep(2)
        return torch.relu(self.linear(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.slow = Slow()
        self.last = nn.Linear(256, 10)

    def forward(self, x):
        return self.last(self.slow(x))


def evaluate():
    model.eval()
    right = torch.zeros((), device=kit.DEVICE)
    with torch.no_grad():
        for _ in range(10):
            right += (model(inputs).argmax(1) == labels).sum()
    accuracy = right.item() / 640
    model.train()
    return accuracy


kit.calibrate()
torch.manual_seed(0)
model = Net().to(kit.DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(64, 256, device=kit.DEVICE)
labels = torch.randint(0, 10, (64,), device=kit.DEVICE)
model.train()
for i in range(100):
    kit.step()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if i % 20 == 19:
        with kit.host_span("evaluation"):
            evaluate()
kit.save([model])
