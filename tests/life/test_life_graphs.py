"""Graphs made of an instrumented model are the bare model's: ``torch.compile``, ``torch.export``, ``torch.jit``."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from engine_laws import Watched, count, everything
from torch import Tensor, nn

from autoprof import Phase

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),  # dynamo asks for it
]
X = torch.ones(2, 4)


class Net(nn.Module):
    """A leaf, a container that is called, and a shared layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.body = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.body.append(self.first)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(torch.relu(self.first(x)))


def net() -> Net:
    """Return the same model each time."""
    torch.manual_seed(0)
    return Net()


class Compiler:
    """A backend that counts its graphs and keeps what dynamo put into them.

    ``lowered`` ones are made of operators, as a compiler's are. What runs the graph itself calls, with torch 2.4, the
    modules of ``torch.nn`` in it, hooks and all.
    """

    def __init__(self, *, lowered: bool = False) -> None:
        torch._dynamo.reset()
        self.graphs: list[str] = []
        self._lower = torch._dynamo.lookup_backend("aot_eager") if lowered else None

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Any:
        self.graphs.append(graph.code)
        return graph if self._lower is None else self._lower(graph, inputs)


def guards(function: Any) -> list[int]:
    """Return how many guards each compiled version of a function has."""
    entries = torch._dynamo.eval_frame._debug_get_cache_entry_list(function.__code__)
    return [str(entry.guard_manager).count("+- ") for entry in entries if hasattr(entry, "guard_manager")]


def train(model: Callable[[Tensor], Tensor], end_step: Callable[[], None], steps: int = 4) -> None:
    """Run forward and backward."""
    for _ in range(steps):
        model(X).sum().backward()
        end_step()


def nothing() -> None:
    """Do nothing."""


@pytest.mark.parametrize("sampling", [1, 2])
@pytest.mark.parametrize("step", ["auto", "manual"])
def test_compiled_after_instrumenting_graphs_and_guards_are_those_of_the_bare_model(step: str, sampling: int) -> None:
    """Not one more at close, in a pause, or in steps that are not sampled."""
    model, compiler = net(), Compiler()
    compiled = torch.compile(model, backend=compiler)
    train(compiled, nothing)
    expected, guarded = compiler.graphs, guards(Net.forward)
    assert len(expected) == 1

    model, compiler = net(), Compiler()
    config = everything(step=step, sample={"every": sampling, "warmup": 0, "budget": None})
    with Watched(model, config=config) as watched:
        compiled = torch.compile(model, backend=compiler)

        def end_step() -> None:
            watched.step()
            with watched.session.pause():
                compiled(X)

        train(compiled, end_step)
        assert not model.first._forward_hooks
    train(compiled, nothing)
    assert compiler.graphs == expected
    assert guards(Net.forward) == guarded


SCRIPT = """
import sys, torch, autoprof
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
assert "torch._dynamo" not in sys.modules
session = autoprof.instrument(model, {"targets": [{"match": ".*"}], "sinks": {}})
assert "torch._dynamo" not in sys.modules
graphs = []
compiled = torch.compile(model, backend=lambda graph, _: graphs.append(graph) or graph)
for _ in range(3):
    compiled(torch.ones(2, 4)).sum().backward()
    session.step()
session.close()
compiled(torch.ones(2, 4))
print(len(graphs))
"""


def test_a_session_does_not_load_the_compiler_and_is_there_when_somebody_does() -> None:
    """Loading it takes a second; hooks step aside for one that is loaded later, too."""
    found = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout == "1\n"


def test_scripting_a_part_of_an_instrumented_model_works_and_so_does_the_whole_around_it() -> None:
    """``model.part = torch.jit.script(model.part)`` in the middle of a run."""
    model = net()
    expected = model(X)
    with Watched(model) as watched:
        model.body = torch.jit.script(model.body)
        found = model(X)
        found.sum().backward()
        watched.step()
        again = torch.jit.script(nn.Sequential(nn.Identity(), model))
    assert torch.equal(found, expected)
    assert torch.equal(again(X), expected)
    assert count(watched.frames[0], Phase.FORWARD)["Net"] == 1


def test_modules_inside_a_scripted_one_are_named_once() -> None:
    """The scripted module itself is timed when Python calls it."""
    model = nn.Sequential(torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.Tanh())), nn.Linear(4, 2))
    with Watched(model) as watched:
        train(model, watched.step, 2)
        summary = watched.session.summary()
    (note,) = summary.notes
    assert note.endswith("hooks do not fire inside modules that TorchScript runs: 0.0, 0.1")
    assert [count(frame, Phase.FORWARD)["0"] for frame in watched.frames] == [1, 1]
