"""40 tiny layers: the device waits for launches."""

import kit
import torch
from torch import nn

EXPECTED = {
    "steps": 150,
    "step_tolerance": 0.3,  # recorded steps launch more slowly than others
    "claims": [
        {"kind": "top", "rule": "launch-bound", "gpu": True},
        {"kind": "not_found", "rule": "sync-call"},
        {"kind": "not_found", "rule": "data-wait"},
    ],
}

layers = nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(40)])
model = kit.Net(layers=layers, last=kit.last(16))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
kit.train(model, [kit.batch(8, 16)] * 150, optimizer=optimizer)
kit.save(model)
