"""torch.utils.checkpoint of a module with a sleeping kernel of 4 ms, use_reentrant=True."""

import kit
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

EXPECTED = {
    "steps": 100,
    "counts": {"block": 200},
    "claims": [
        {"kind": "row", "module": "block", "phase": "forward", "is": "block"},
        {"kind": "row", "module": "block", "phase": "recompute", "is": "block"},
        {"kind": "row", "module": "block", "phase": "backward", "is": 0.0, "tolerance_ms": 0.5, "own_part": True},
        {"kind": "phase", "phase": "forward", "is": "block"},
        {"kind": "phase", "phase": "recompute", "is": "block"},
        {"kind": "phase", "phase": "backward", "is": 0.0, "tolerance_ms": 0.6},
        {"kind": "top", "rule": "recompute"},
    ],
}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 256)

    def forward(self, x):
        x = self.linear(x)
        with kit.span("block"):
            kit.sleep(4)
        return torch.relu(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(256, 256)
        self.block = Block()
        self.tail = nn.Linear(256, 10)

    def forward(self, x):
        x = self.head(x)
        x = checkpoint(self.block, x, use_reentrant=True)
        return self.tail(x)


kit.calibrate()
torch.manual_seed(0)
model = Net().to(kit.DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(64, 256, device=kit.DEVICE)
labels = torch.randint(0, 10, (64,), device=kit.DEVICE)
for _ in range(100):
    kit.step()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
kit.save([model])
