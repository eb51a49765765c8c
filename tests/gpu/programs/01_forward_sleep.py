"""A sleeping kernel of 5 ms in the forward of one module."""

import kit
from torch import nn

EXPECTED = {
    "steps": 120,
    "counts": {"slow": 120},
    "claims": [
        {"kind": "row", "module": "slow", "phase": "forward", "is": "slow"},
        {"kind": "row", "module": "slow", "phase": "backward", "is": 0.0},
        {"kind": "row", "module": "first", "phase": "forward", "is": 0.0},
        {"kind": "row", "module": "last", "phase": "forward", "is": 0.0},
        {"kind": "phase", "phase": "forward", "is": "slow"},
        {"kind": "phase", "phase": "backward", "is": 0.0, "tolerance_ms": 0.6},
        {"kind": "phase", "phase": "other", "is": 0.0, "tolerance_ms": 0.6},
        {"kind": "names", "module": "slow", "soft": True},
    ],
}

model = kit.Net(first=nn.Linear(256, 256), slow=kit.Slow(5), last=kit.last())
kit.train(model, 120)
kit.save(model)
