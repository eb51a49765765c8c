"""Train a few steps with the installed package and read the run back. Usage: python try_install.py C|Python.

The argument is the expected way of making marks: in the extension, or in Python where it was not built.
"""

import sys
import tempfile

import torch

import autoprof
from autoprof._capture.marks import in_c

assert "site-packages" in autoprof.__file__, f"not the installed package: {autoprof.__file__}"
assert ("C" if in_c() else "Python") == sys.argv[1], f"marks are made in {'C' if in_c() else 'Python'}"

model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with tempfile.TemporaryDirectory() as folder:
    session = autoprof.instrument(model, {"output": folder, "sinks": {"jsonl": {}}}, optimizer=optimizer)
    for _ in range(8):
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        session.step()
    session.close()
    assert session.folder is not None
    run = autoprof.read_run(session.folder)
    assert run.summary is not None
    phases = {row.phase.value for row in run.summary.rows}
    assert phases >= {"forward", "backward", "optimizer"}, phases
