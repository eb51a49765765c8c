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


class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 256)

    def forward(self, x):
        with kit.span("slow"):
            kit.sleep(1)
        return torch.relu(self.linear(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.slow = Slow()
        self.last = nn.Linear(256, 10)

    def forward(self, x):
        return self.last(self.slow(x))


kit.calibrate()
torch.manual_seed(0)
model = Net().to(kit.DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(240 * 16, 256), torch.randint(0, 10, (240 * 16,)))
loader = torch.utils.data.DataLoader(data, batch_size=16, pin_memory=not kit.DRY)
for i, (inputs, labels) in enumerate(loader):
    if i % 4 == 0:
        kit.step()
    inputs, labels = inputs.to(kit.DEVICE, non_blocking=True), labels.to(kit.DEVICE, non_blocking=True)
    loss = nn.functional.cross_entropy(model(inputs), labels) / 4
    loss.backward()
    if i % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
kit.save([model])
