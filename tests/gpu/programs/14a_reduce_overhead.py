"""torch.compile(model, mode="reduce-overhead"): CUDA graphs made by inductor."""

import kit
import torch
from torch import nn

EXPECTED = {
    "steps": 100,
    "step_tolerance": 0.3,  # recorded steps launch more slowly than others
    "bare": 1,
    "limit_s": 45,
    "claims": [{"kind": "truth", "key": "finite", "is": True}],
}

model = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), kit.last()).to(kit.DEVICE)
compiled = torch.compile(model, backend="aot_eager") if kit.DRY else torch.compile(model, mode="reduce-overhead")
losses = kit.train(compiled, (kit.batch() for _ in range(100)))
kit.save(model, losses=losses)
