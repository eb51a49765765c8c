"""A pinned copy, non_blocking, of 64 MB to the device in each step, and a kernel of 3 ms."""

import kit
import torch

EXPECTED = {
    "steps": 60,
    "counts": {"copy": 60, "slow": 60},
    "claims": [
        {"kind": "phase", "phase": "h2d", "is": "copy", "gpu": True},
        {"kind": "row", "module": "slow", "phase": "forward", "is": "slow"},
    ],
}


def batches():
    hosts = [torch.ones(64, 262144, pin_memory=not kit.DRY) for _ in range(2)]  # 64 MiB each
    labels = torch.randint(0, 10, (64,), device=kit.DEVICE)
    for i in range(60):
        with kit.span("copy"):
            inputs = hosts[i % 2].to(kit.DEVICE, non_blocking=True)
        yield inputs[:, :256], labels


model = kit.Net(slow=kit.Slow(3), last=kit.last())
kit.train(model, batches())
kit.save(model)
