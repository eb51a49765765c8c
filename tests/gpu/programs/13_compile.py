"""torch.compile(model), and a sleeping kernel of 4 ms in a loss module outside of the compiled part."""

import kit
import torch
from torch import nn

EXPECTED = {
    "steps": 80,
    "bare": 1,
    "limit_s": 45,
    "counts": {"loss": 80},
    "claims": [
        {"kind": "row", "module": "Loss/SlowLoss", "phase": "forward", "is": "loss"},
        {"kind": "phase", "phase": "backward", "is": 0.0, "tolerance_ms": 1.0},
        {"kind": "not_found", "rule": "recompile"},
    ],
}


class SlowLoss(nn.Module):
    def forward(self, outputs, labels):
        with kit.span("loss"):
            kit.sleep(4)
        return nn.functional.cross_entropy(outputs, labels)


model = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), kit.last()).to(kit.DEVICE)
compiled = torch.compile(model, backend="aot_eager" if kit.DRY else "inductor")
kit.train(compiled, 80, criterion=SlowLoss())
kit.save(model)
