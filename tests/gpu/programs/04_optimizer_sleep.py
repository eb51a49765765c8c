"""An optimizer with a sleeping kernel of 4 ms in its step()."""

import kit
import torch
from torch import nn

EXPECTED = {
    "steps": 120,
    "counts": {"optimizer": 120},
    "claims": [
        {"kind": "phase", "phase": "optimizer", "is": "optimizer", "tolerance_ms": 0.4},
        {"kind": "row", "module": "Optimizer", "phase": "optimizer", "is": "optimizer", "tolerance_ms": 0.4},
        {"kind": "phase", "phase": "forward", "is": 0.0, "tolerance_ms": 0.8},
        {"kind": "phase", "phase": "backward", "is": 0.0, "tolerance_ms": 0.8},
        {"kind": "top", "rule": "optimizer"},
    ],
}


class SlowSGD(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        with kit.span("optimizer"):
            kit.sleep(4)
        return super().step(closure)


kit.calibrate()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)).to(kit.DEVICE)
optimizer = SlowSGD(model.parameters(), lr=0.01, momentum=0.9)
inputs = torch.randn(64, 256, device=kit.DEVICE)
labels = torch.randint(0, 10, (64,), device=kit.DEVICE)
for _ in range(120):
    kit.step()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
kit.save([model])
