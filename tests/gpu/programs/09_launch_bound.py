"""40 tiny layers: the device waits for launches."""

import kit
import torch
from torch import nn

EXPECTED = {
    "steps": 150,
    "step_tolerance": 0.3,  # recorded steps launch more slowly than others
    "claims": [
        {"kind": "top", "rule": "launch-bound", "gpu": True},
        {"kind": "not_found", "rule": "sync-call"},
        {"kind": "not_found", "rule": "data-wait"},
    ],
}

kit.calibrate()
torch.manual_seed(0)
model = nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(40)], nn.Linear(16, 10)).to(
    kit.DEVICE
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
inputs = torch.randn(8, 16, device=kit.DEVICE)
labels = torch.randint(0, 10, (8,), device=kit.DEVICE)
for _ in range(150):
    kit.step()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
kit.save([model])
