"""Where private names of torch are missing, public hooks mark the same spans."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from engine_laws import Watched, everything
from torch import nn

from autoprof._capture.hooks import backward, native_hooks

WITHOUT_ATTRIBUTE = "torch.nn.Module.__call__ = torch.nn.Module._call_impl; del torch.nn.Module._compiled_call_impl"
SCRIPT = """
import torch
{prelude}
import autoprof
from autoprof.doctor.installation import check_versions
from autoprof.testing import ListSink

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.shared = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.shared(torch.relu(self.shared(self.layer(x))))

model, sink = torch.nn.Sequential(Block(), torch.nn.Linear(4, 1)), ListSink()
config = {{"targets": [{{"match": ".*"}}], "sample": {{"budget": None, "warmup": 0}}, "sinks": {{}}, "step": "manual"}}
with autoprof.instrument(model, config, sinks=[sink]) as session:
    for _ in range(3):
        torch.utils.checkpoint.checkpoint(model, torch.ones(2, 4), use_reentrant=False).sum().backward()
        session.step()
for frame in sink.frames:
    print([(span.name, str(span.phase), span.parent) for span in frame.spans])
print(any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()))
print("are marked by hooks" in check_versions().message)
"""


def run(prelude: str) -> list[str]:
    """Return the lines of the script in a process of its own, which begins with this statement."""
    script = SCRIPT.format(prelude=prelude)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.splitlines()


def test_a_torch_without_the_attribute_has_the_same_spans_and_doctor_says_so() -> None:
    """Nothing is left on the model either."""
    *expected, left, hooked = run("")
    *found, hooks_left, says = run(WITHOUT_ATTRIBUTE)
    assert found == expected
    assert (left, hooked) == ("False", "False")
    assert (hooks_left, says) == ("False", "True")


def test_without_hook_dicts_nodes_get_prehooks_with_the_same_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a gradient is asked for in the middle of the model."""

    def record() -> list[Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))
        with Watched(model, config=everything(step="manual", flops="off")) as watched:
            for _ in range(2):
                model(torch.ones(1, 2)).sum().backward()
                hidden = model[0](torch.ones(1, 2))
                torch.autograd.grad(model[2](hidden).sum(), hidden)
                watched.step()
            return [[(one.name, one.phase, one.parent, one.host_ns) for one in frame.spans] for frame in watched.frames]

    expected = record()
    for module in (native_hooks, backward):
        monkeypatch.setattr(module, "HAS_HOOK_DICTS", False)
    assert record() == expected
