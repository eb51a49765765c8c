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

model = kit.Net(slow=kit.Slow(2), last=kit.last())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler(kit.DEVICE, init_scale=1024.0)
for i in range(100):
    kit.step()
    inputs, labels = kit.batch()
    with torch.autocast(kit.DEVICE, dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(inputs), labels)
    if i == 40:
        loss = loss * float("inf")
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
kit.save(model, skipped=int(scaler.get_scale() == 512.0))
