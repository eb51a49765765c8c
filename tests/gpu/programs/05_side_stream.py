"""A module whose forward works on two streams at once: 4 ms on a side stream beside 2.5 ms on the main one."""

import kit
import torch
from torch import nn

EXPECTED = {
    "steps": 120,
    "counts": {"aside": 120, "direct": 120},
    "claims": [
        {"kind": "row", "module": "both.aside", "phase": "forward", "is": "aside", "gpu": True},
        {"kind": "row", "module": "both.direct", "phase": "forward", "is": "direct"},
        {"kind": "row", "module": "both", "phase": "forward", "is": "both"},
        {"kind": "phase", "phase": "forward", "is": "both"},
        {"kind": "lane", "module": "both.aside", "phase": "forward", "main": False, "gpu": True},
        {"kind": "lane", "module": "both.direct", "phase": "forward", "main": True},
    ],
}


class Part(nn.Module):
    def __init__(self, name, ms):
        super().__init__()
        self.linear = nn.Linear(256, 256)
        self.name, self.ms = name, ms

    def forward(self, x):
        with kit.span(self.name):
            kit.sleep(self.ms)
        return self.linear(x)


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.aside = Part("aside", 4.0)
        self.direct = Part("direct", 2.5)
        self.side = kit.side_stream()

    def forward(self, x):
        with kit.span("both"):
            if self.side is None:
                return self.aside(x) + self.direct(x)
            current = torch.cuda.current_stream()
            self.side.wait_stream(current)
            x.record_stream(self.side)
            with torch.cuda.stream(self.side):
                a = self.aside(x)
            b = self.direct(x)
            current.wait_stream(self.side)
            a.record_stream(current)
            return a + b


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(256, 256)
        self.both = Both()
        self.last = nn.Linear(256, 10)

    def forward(self, x):
        return self.last(self.both(self.first(x)))


kit.calibrate()
torch.manual_seed(0)
model = Net().to(kit.DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(64, 256, device=kit.DEVICE)
labels = torch.randint(0, 10, (64,), device=kit.DEVICE)
for _ in range(120):
    kit.step()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
kit.save([model])
