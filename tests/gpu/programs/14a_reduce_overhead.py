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

kit.calibrate()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10)).to(kit.DEVICE)
compiled = torch.compile(model, backend="aot_eager") if kit.DRY else torch.compile(model, mode="reduce-overhead")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
labels = torch.randint(0, 10, (64,), device=kit.DEVICE)
losses = []
for _ in range(100):
    kit.step()
    inputs = torch.randn(64, 256, device=kit.DEVICE)
    loss = nn.functional.cross_entropy(compiled(inputs), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.detach().clone())
losses = torch.stack(losses)
kit.save([model], losses=kit.checksum(losses), finite=bool(losses.isfinite().all()))
