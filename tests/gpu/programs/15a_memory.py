"""A module whose eight layers hold 512 MiB of activations."""

import kit
import torch
from torch import nn

EXPECTED = {
    "steps": 60,
    "claims": [
        {"kind": "truth_between", "key": "held_mib", "low": 511, "high": 640, "gpu": True},
        {"kind": "peak", "gpu": True},
        {"kind": "activations", "gpu": True},
        {"kind": "memory_part", "part": "parameter_bytes", "key": "parameter_bytes"},
        {"kind": "memory_part", "part": "gradient_bytes", "key": "parameter_bytes"},
        {"kind": "memory_part", "part": "state_bytes", "key": "state_bytes"},
    ],
}


class Holder(nn.Module):
    """Each sine keeps its input of 64 MiB for backward."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4096))

    def forward(self, x):
        x = x * self.scale
        for _ in range(8):
            x = torch.sin(x)
        return x


def allocated():
    return 0 if kit.DRY else torch.cuda.memory_allocated()


model = kit.Net(holder=Holder(), last=kit.last(4096))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
inputs, labels = kit.batch(64 if kit.DRY else 4096, 4096)  # 64 MiB
for _ in range(60):
    kit.step()
    begin = allocated()
    outputs = model(inputs)
    held = allocated() - begin
    loss = nn.functional.cross_entropy(outputs, labels)
    del outputs
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
parameters = sum(p.nbytes for p in model.parameters())
state = sum(v.nbytes for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor))
kit.save(model, held_mib=held / 2**20, parameter_bytes=parameters, state_bytes=state)
