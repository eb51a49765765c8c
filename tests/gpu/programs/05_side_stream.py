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


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.aside = kit.Slow(4.0, "aside")
        self.direct = kit.Slow(2.5, "direct")
        self.side = None if kit.DRY else torch.cuda.Stream()

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


model = kit.Net(first=nn.Linear(256, 256), both=Both(), last=kit.last())
kit.train(model, 120)
kit.save(model)
