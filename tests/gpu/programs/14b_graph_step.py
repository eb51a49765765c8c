"""A whole training step captured by hand as a torch.cuda.CUDAGraph, and replayed (as in torch's documentation)."""

import kit
import torch
from torch import nn

EXPECTED = {
    "steps": [3, 4, 100, 101, 103, 104],  # a replay calls no optimizer: only the eager steps before can be seen
    "steps_soft": True,
    "bare": 1,
    "claims": [
        {"kind": "truth", "key": "finite", "is": True},
        {"kind": "truth", "key": "moved", "is": True},
    ],
}

model = kit.Net(slow=kit.Slow(3, name=None), last=kit.last())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
static_inputs, static_labels = kit.batch()


def passes():
    global static_loss
    static_loss = nn.functional.cross_entropy(model(static_inputs), static_labels)
    static_loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


replay = kit.captured(passes, passes)
before, losses = kit.checksum(model), []
for _ in range(100):
    kit.step()
    static_inputs.copy_(torch.randn(64, 256, device=kit.DEVICE))
    replay()
    losses.append(static_loss.detach().clone())
kit.save(model, losses=torch.stack(losses), moved=before != kit.checksum(model))
