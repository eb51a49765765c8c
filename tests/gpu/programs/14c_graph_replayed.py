"""Forward and backward captured as a torch.cuda.CUDAGraph; each iteration replays it and calls the optimizer."""

import kit
import torch
from torch import nn

EXPECTED = {
    "steps": [99, 100, 101, 102, 103, 104],  # 3 warm-up iterations before the capture, 100 replays
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


def warm_up():
    passes()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)  # so that backward makes the gradients in the graph's own memory


replay = kit.captured(warm_up, passes)
before, losses = kit.checksum(model), []
for inputs, labels in kit.loader(100 * 64, 64):
    kit.step()
    static_inputs.copy_(inputs, non_blocking=True)
    static_labels.copy_(labels, non_blocking=True)
    replay()
    if not kit.DRY:
        optimizer.step()
    losses.append(static_loss.detach().clone())
kit.save(model, losses=torch.stack(losses), moved=before != kit.checksum(model))
