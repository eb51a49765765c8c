"""torch.cuda.synchronize() in each step, behind a kernel of 5 ms; then the device waits for many small layers."""

import kit
import torch
from torch import nn

EXPECTED = {
    "steps": 120,
    "step_tolerance": 0.15,  # recorded steps launch more slowly than others
    "claims": [
        {"kind": "found", "rule": "sync-call", "gpu": True},
        {"kind": "line", "rule": "sync-call", "mark": "HERE", "gpu": True},
        {"kind": "top", "rule": "sync-call", "gpu": True, "soft": True},
        {"kind": "row", "module": "slow", "phase": "forward", "is": "slow"},
    ],
}


class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x):
        x = self.linear(x)
        with kit.span("slow"):
            kit.sleep(5)
        return torch.relu(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(30)])
        self.slow = Slow()
        self.last = nn.Linear(64, 10)

    def forward(self, x):
        return self.last(self.slow(self.layers(x)))


kit.calibrate()
torch.manual_seed(0)
model = Net().to(kit.DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(64, 64, device=kit.DEVICE)
labels = torch.randint(0, 10, (64,), device=kit.DEVICE)
for _ in range(120):
    kit.step()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if not kit.DRY:
        torch.cuda.synchronize()  # HERE
kit.save([model])
