"""A loader of 5 ms a batch before a step of 3 ms on the device: the step waits for its batch."""

import time

import kit
import torch
from torch import nn

EXPECTED = {
    "steps": 120,
    "claims": [
        {"kind": "top", "rule": "data-wait"},
        {"kind": "line", "rule": "data-wait", "mark": "HERE", "soft": True},
        {"kind": "row", "module": "slow", "phase": "forward", "is": "slow"},
        # the device computes for 3 ms; the rest of the step it waits, nearly all of it for the batch
        {"kind": "phase_between", "phase": "data", "low": 1.2, "high": 5.8},
    ],
}


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 120 * 32

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
            kit.sleep(3)
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
