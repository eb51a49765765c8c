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


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(256, 256)
        self.last = nn.Linear(256, 10)

    def forward(self, x):
        x = torch.relu(self.first(x))
        kit.sleep(3)
        return self.last(x)


kit.calibrate()
torch.manual_seed(0)
model = Net().to(kit.DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
criterion = nn.CrossEntropyLoss()
static_inputs = torch.randn(64, 256, device=kit.DEVICE)
static_labels = torch.randint(0, 10, (64,), device=kit.DEVICE)


def step():
    global static_loss
    optimizer.zero_grad(set_to_none=True)
    static_loss = criterion(model(static_inputs), static_labels)
    static_loss.backward()
    optimizer.step()


if kit.DRY:
    for _ in range(3):
        step()
    replay = step
else:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        static_loss = criterion(model(static_inputs), static_labels)
        static_loss.backward()
        optimizer.step()
    replay = graph.replay
before = kit.checksum(model)
losses = []
for _ in range(100):
    kit.step()
    static_inputs.copy_(torch.randn(64, 256, device=kit.DEVICE))
    replay()
    losses.append(static_loss.detach().clone())
losses = torch.stack(losses)
kit.save(
    [model], losses=kit.checksum(losses), finite=bool(losses.isfinite().all()), moved=before != kit.checksum(model)
)
