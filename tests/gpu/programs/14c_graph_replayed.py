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
data = torch.utils.data.TensorDataset(torch.randn(100 * 64, 256), torch.randint(0, 10, (100 * 64,)))
loader = torch.utils.data.DataLoader(data, batch_size=64, pin_memory=not kit.DRY)


def passes():
    global static_loss
    static_loss = criterion(model(static_inputs), static_labels)
    static_loss.backward()


if kit.DRY:
    for _ in range(3):
        optimizer.zero_grad()
        passes()
        optimizer.step()

    def replay():
        for parameter in model.parameters():
            parameter.grad.zero_()
        passes()
else:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            passes()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)  # so that backward makes the gradients in the graph's own memory
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_loss = criterion(model(static_inputs), static_labels)
        static_loss.backward()
    replay = graph.replay
before = kit.checksum(model)
losses = []
for inputs, labels in loader:
    kit.step()
    static_inputs.copy_(inputs, non_blocking=True)
    static_labels.copy_(labels, non_blocking=True)
    replay()
    optimizer.step()
    losses.append(static_loss.detach().clone())
losses = torch.stack(losses)
kit.save(
    [model], losses=kit.checksum(losses), finite=bool(losses.isfinite().all()), moved=before != kit.checksum(model)
)
