"""Write records of a run, read them back, and compute something of your own from them.

python examples/read_a_run.py
"""

import tempfile

import torch
from torch import nn

import autoprof

model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with tempfile.TemporaryDirectory() as folder:
    config = {"output": folder, "sinks": {"jsonl": {}}, "sample": {"budget": None}}  # no budget: record every step
    with autoprof.instrument(model, config, optimizer=optimizer) as session:
        for step in range(20):
            loss = model(torch.randn(32 * (1 + step % 2), 64)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            session.step()

    assert session.folder is not None
    run = autoprof.read_run(session.folder)
    for frame in run.frames:
        backward_ns = sum(
            span.host_ns for span in frame.spans if span.phase is autoprof.Phase.BACKWARD and span.parent is None
        )
        print(f"step {frame.step:3}: {frame.duration_ns / 1e6:7.3f} ms, backward {backward_ns / 1e6:7.3f} ms")
