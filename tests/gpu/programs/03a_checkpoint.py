"""torch.utils.checkpoint of a module with a sleeping kernel of 4 ms, use_reentrant=False."""

import kit
from torch import nn
from torch.utils.checkpoint import checkpoint

EXPECTED = {
    "steps": 100,
    "counts": {"block": 200},
    "claims": [
        {"kind": "row", "module": "block", "phase": "forward", "is": "block"},
        {"kind": "row", "module": "block", "phase": "recompute", "is": "block"},
        {"kind": "row", "module": "block", "phase": "backward", "is": 0.0, "tolerance_ms": 0.5, "own_part": True},
        {"kind": "phase", "phase": "forward", "is": "block"},
        {"kind": "phase", "phase": "recompute", "is": "block"},
        {"kind": "phase", "phase": "backward", "is": 0.0, "tolerance_ms": 0.6},
        {"kind": "top", "rule": "recompute"},
    ],
}


class Net(kit.Net):
    def forward(self, x):
        x = self.head(x)
        x = checkpoint(self.block, x, use_reentrant=False)
        return self.tail(x)


model = Net(head=nn.Linear(256, 256), block=kit.Slow(4, "block"), tail=kit.last())
kit.train(model, 100)
kit.save(model)
