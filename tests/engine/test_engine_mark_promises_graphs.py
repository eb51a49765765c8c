"""What traces, scripts, exports or compiles a recorded model finds the bare model."""

import io
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo.compiled_autograd
import torch.export
import torch.fx
from bits import describe
from mark_promises import (
    Counting,
    as_bare,
    backwards,
    batch,
    forwards,
    recorded,
    train_step,
    two_layers,
)
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def compiler_is_used() -> None:
    """Compile once: the compiler then replaces ``Module.__init__`` for good."""
    torch.compile(two_layers(), backend="eager")(batch())


@pytest.fixture(autouse=True)
def empty_compiler() -> Iterator[None]:
    """Start and end without compiled graphs."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


# Tracing, scripting, export.


class Inside(nn.Module):
    """A module that torch does not know, around modules that it knows, and one used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Sequential(nn.Tanh(), nn.Linear(3, 3))])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x) + x
        return self.layers[0](x)


class NoLeaf(torch.fx.Tracer):
    """A tracer that looks into every module."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return False


def code_without_leaves(model: nn.Module) -> str:
    """Return the code of a trace through every module."""
    tracer = NoLeaf()
    return torch.fx.GraphModule(model, tracer.trace(model)).code


def unmangled(code: str) -> str:
    """Return code without the numbers by which torch tells classes of equal names apart, and their files."""
    return re.sub(r"#.*|_+torch_mangle_\d+\.?", "", code)


def traced_graph(model: nn.Module) -> str:
    """Return the graph of ``torch.jit.trace``, with the scopes of modules."""
    graph = str(torch.jit.trace(model, (batch(),)).inlined_graph)
    return unmangled(graph) + str(re.findall(r"scope: (\S+)", graph))


def saved_script(model: nn.Module) -> Any:
    """Return code and output of a scripted module that was saved and loaded."""
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(model), buffer)
    buffer.seek(0)
    loaded = torch.jit.load(buffer)
    return unmangled(loaded.code), loaded(batch())


READERS: dict[str, Callable[[nn.Module], Any]] = {
    "fx": lambda model: torch.fx.symbolic_trace(model).code,
    "fx, no leaf": code_without_leaves,
    "make_fx": lambda model: make_fx(model)(batch()).code,
    "jit.trace": traced_graph,
    "jit.script, saved": saved_script,
    "export": lambda model: str(torch.export.export(model, (batch(),)).graph),
    "dynamo.explain": lambda model: torch._dynamo.explain(model)(batch()).graph_count,
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("make", [two_layers, Inside])
def test_what_reads_the_model_finds_the_bare_model(name: str, make: Callable[[], nn.Module]) -> None:
    """Code, graph and results are equal, and a plain step after it is recorded."""

    def work(model: nn.Module) -> Any:
        torch._dynamo.reset()
        return READERS[name](model), train_step(model)

    for frame in as_bare(make, work):
        assert forwards(frame)[make().__class__.__name__] >= 1
        assert backwards(frame)[make().__class__.__name__] == 1


# Compilation.


def test_nothing_is_compiled_again_when_sessions_begin_and_end() -> None:
    """Compiled before the first; called bare, recorded, closed, recorded again, and closed."""
    model, backend = two_layers(), Counting()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    expected = describe(compiled(batch()))
    for _ in range(2):
        with recorded(model) as watched:
            for _ in range(3):
                assert describe(compiled(batch())) == expected
                watched.step()
        assert describe(compiled(batch())) == expected
    assert len(backend.graphs) == 1
