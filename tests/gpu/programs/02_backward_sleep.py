"""A sleeping kernel of 5 ms in the backward of one module, by an autograd.Function."""

import kit
import torch
from torch import nn

EXPECTED = {
    "steps": 120,
    "counts": {"slow": 120},
    "claims": [
        {"kind": "row", "module": "slow", "phase": "backward", "is": "slow"},
        {"kind": "row", "module": "slow", "phase": "forward", "is": 0.0},
        {"kind": "row", "module": "first", "phase": "backward", "is": 0.0},
        {"kind": "row", "module": "last", "phase": "backward", "is": 0.0},
        {"kind": "phase", "phase": "backward", "is": "slow", "tolerance_ms": 0.5},
        {"kind": "found", "rule": "backward-ratio", "module": "slow"},
    ],
}


class SlowGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        with kit.span("slow"):
            kit.sleep(5)
        return grad


class Slow(nn.Linear):
    def forward(self, x):
        return torch.relu(SlowGradient.apply(super().forward(x)))


model = kit.Net(first=nn.Linear(256, 256), slow=Slow(256, 256), last=kit.last())
kit.train(model, 120)
kit.save(model)
