"""A loader of 5 ms a batch before a step of 3 ms on the device: the step waits for its batch."""

import time

import kit
import torch

EXPECTED = {
    "steps": 120,
    "claims": [
        {"kind": "top", "rule": "data-wait"},
        {"kind": "line", "rule": "data-wait", "mark": "HERE", "soft": True},
        {"kind": "row", "module": "slow", "phase": "forward", "is": "slow"},
        # the device computes for 3 ms; the rest of the step it waits, nearly all of it for the batch
        {"kind": "phase_between", "phase": "data", "low": 1.2, "high": 5.8},
    ],
}


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 120 * 32

    def __getitem__(self, index):
        return torch.full((256,), float(index % 7)), index % 10

    def __getitems__(self, indices):
        time.sleep(0.005)  # HERE
        return [self[index] for index in indices]


model = kit.Net(slow=kit.Slow(3), last=kit.last())
kit.train(model, kit.loader(Images(), 32))
kit.save(model)
