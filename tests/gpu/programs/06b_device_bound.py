"""The same loader of 5 ms a batch before a step of 20 ms on the device: nothing waits for it."""

import time

import kit
import torch
from torch import nn

EXPECTED = {
    "steps": 60,
    "claims": [
        {"kind": "not_found", "rule": "data-wait", "gpu": True},
        {"kind": "row", "module": "slow", "phase": "forward", "is": "slow"},
        {"kind": "phase", "phase": "data", "is": 0.0, "tolerance_ms": 0.5, "gpu": True},
    ],
}


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 60 * 32

    def __getitem__(self, index):
        return torch.full((256,), float(index % 7)), index % 10

    def __getitems__(self, indices):
        time.sleep(0.005)  # HERE
        return [self[index] for index in indices]


class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 256)

    def forward(self, x):
        with kit.span("slow"):
            kit.sleep(20)
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
loader = torch.utils.data.DataLoader(Images(), batch_size=32, pin_memory=not kit.DRY)
for inputs, labels in loader:
    kit.step()
    inputs, labels = inputs.to(kit.DEVICE, non_blocking=True), labels.to(kit.DEVICE, non_blocking=True)
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
kit.save([model])
