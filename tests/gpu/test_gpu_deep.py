"""Deep captures on a device: kernels belong to layers, in the forward."""

from pathlib import Path

import pytest
import torch
from torch import nn

import autoprof

pytestmark = pytest.mark.gpu


def test_kernels_belong_to_the_layers_that_launched_them(tmp_path: Path) -> None:
    """The larger layer takes more device time."""
    model = nn.Sequential(nn.Linear(512, 4096), nn.Linear(4096, 512)).cuda()
    small = nn.Linear(512, 8).cuda()
    model.append(small)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autoprof.deep_capture(model, folder=tmp_path, snapshot=True) as capture:
        for _ in range(3):
            model(torch.ones(256, 512, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert capture.result is not None
    rows = {row.key: row for row in capture.result if "CPU" in str(row.device_type)}
    assert rows["0"].device_time_total > rows["2"].device_time_total > 0
    assert rows["0"].device_memory_usage > 0
    assert "CUDA" in capture.table()
    assert {path.suffix for path in capture.files} >= {".json", ".txt", ".pickle"}
