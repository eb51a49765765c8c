"""Deep captures on a device: kernels belong to layers, forward and backward; memory is the allocator's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import autoprof

pytestmark = pytest.mark.gpu


def test_kernels_belong_to_the_layers_that_launched_them(tmp_path: Path) -> None:
    """The larger layer takes more device time, in forward and backward; all kernels are somebody's."""
    model = nn.Sequential(nn.Linear(512, 4096), nn.Linear(4096, 512)).cuda()
    small = nn.Linear(512, 8).cuda()
    model.append(small)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autoprof.deep_capture(model, folder=tmp_path, snapshot=True) as capture:
        for _ in range(3):
            model(torch.ones(256, 512, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    result = capture.result
    assert result is not None
    assert result.has_device
    assert result.device_memory
    totals = {one.name: one for one in result.layer_totals()}
    for phase in ("", " [backward]"):
        large, tiny = totals[f"0{phase}"].device_ns, totals[f"2{phase}"].device_ns
        assert large is not None
        assert tiny is not None
        assert large > tiny > 0
    launched = sum(row.device_ns or 0 for row in result.kernels)
    owned = sum(row.device_self_ns or 0 for row in result.operators)
    assert owned >= 0.9 * launched
    assert all(call.reserved_bytes for call in result.layers)
    assert {path.suffix for path in capture.files} >= {".json", ".png", ".txt", ".pickle"}
