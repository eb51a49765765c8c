"""An evaluation of ten batches after each twentieth training step."""

import kit
import torch

EXPECTED = {
    "steps": 100,
    "counts": {"slow": 150},
    "claims": [
        {"kind": "row", "module": "slow", "phase": "forward", "is": "slow"},
        {"kind": "excluded", "name": "validation", "is": "evaluation"},
        {"kind": "calls", "module": "slow", "phase": "forward", "is": 1},
    ],
}


def evaluate(number, _loss):
    if number % 20 != 19:
        return
    with kit.host_span("evaluation"):
        model.eval()
        right = torch.zeros((), device=kit.DEVICE)
        with torch.no_grad():
            for _ in range(10):
                right += (model(inputs).argmax(1) == labels).sum()
        right.item()
        model.train()


model = kit.Net(slow=kit.Slow(2), last=kit.last())
inputs, labels = kit.batch()
model.train()
kit.train(model, 100, end=evaluate)
kit.save(model)
