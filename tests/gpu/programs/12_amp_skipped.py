"""Autocast to bfloat16 with a GradScaler; the gradients of iteration 40 are infinite, so the scaler skips its step."""

import kit
import torch
from torch import nn

EXPECTED = {
    "steps": [99, 100],  # updates, or iterations of the loop
    "step_tolerance": 0.15,  # recorded steps launch more slowly than others
    "bare": 1,
    "counts": {"slow": 100},
    "claims": [
        {"kind": "row", "module": "slow", "phase": "forward", "is": "slow"},
        {"kind": "truth", "key": "skipped", "is": 1},
        {"kind": "micro_steps", "is": 1},
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


kit.calibrate()
torch.manual_seed(0)
model = Net().to(kit.DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler(kit.DEVICE, init_scale=1024.0)
labels = torch.randint(0, 10, (64,), device=kit.DEVICE)
for i in range(100):
    kit.step()
    inputs = torch.randn(64, 256, device=kit.DEVICE)
    with torch.autocast(kit.DEVICE, dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(inputs), labels)
    if i == 40:
        loss = loss * float("inf")
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
kit.save([model], skipped=int(scaler.get_scale() == 512.0))
