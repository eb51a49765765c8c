""".item() in each step behind a kernel of 5 ms; then the host launches many small layers, while the device waits."""

import kit
from torch import nn

EXPECTED = {
    "steps": 120,
    "step_tolerance": 0.15,  # recorded steps launch more slowly than others
    "claims": [
        {"kind": "found", "rule": "sync-call", "gpu": True},
        {"kind": "line", "rule": "sync-call", "mark": "HERE", "gpu": True},
        {"kind": "top", "rule": "sync-call", "gpu": True, "soft": True},
        {"kind": "row", "module": "slow", "phase": "forward", "is": "slow"},
    ],
}

total = 0.0


def add(number, loss):
    global total
    total += loss.item()  # HERE


layers = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(30)])
model = kit.Net(layers=layers, slow=kit.Slow(5, width=64), last=kit.last(64))
kit.train(model, [kit.batch(width=64)] * 120, end=add)
kit.save(model)
