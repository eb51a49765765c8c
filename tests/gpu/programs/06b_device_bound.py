"""The same loader of 5 ms a batch before a step of 20 ms on the device: nothing waits for it."""

import time

import kit
import torch

EXPECTED = {
    "steps": 60,
    "claims": [
        {"kind": "not_found", "rule": "data-wait", "gpu": True},
        {"kind": "row", "module": "slow", "phase": "forward", "is": "slow"},
        {"kind": "phase", "phase": "data", "is": 0.0, "tolerance_ms": 0.5, "gpu": True},
    ],
}


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 60 * 32

    def __getitem__(self, index):
        return torch.full((256,), float(index % 7)), index % 10

    def __getitems__(self, indices):
        time.sleep(0.005)  # HERE
        return [self[index] for index in indices]


model = kit.Net(slow=kit.Slow(20), last=kit.last())
kit.train(model, kit.loader(Images(), 32))
kit.save(model)
