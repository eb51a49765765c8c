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


model = kit.Net(first=nn.Linear(256, 256), relu=nn.ReLU(), last=kit.last())
kit.train(model, 120, optimizer=SlowSGD(model.parameters(), lr=0.01, momentum=0.9))
kit.save(model)
