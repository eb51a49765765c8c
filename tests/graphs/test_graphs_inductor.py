"""Modules inside real graphs of inductor, whose operations take an exact time on a fake clock.

The models have matrix products and operations of known length only, for which inductor compiles no C++.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter, OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_laws import Watched, check_laws
from forking_python import ForkingPython
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

from autoprof import Phase
from autoprof.capture.graphs import naming, retrace
from autoprof.capture.graphs.naming import follow_graphs
from autoprof.testing import FakeClock

pytestmark = [  # torch's own, as it compiles
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]
CLOCK = FakeClock()
X = torch.ones(2, 4)
STEPS = 4


@torch.library.custom_op("autoprof_tests::work", mutates_args=())
def work(x: Tensor, forward_ns: int, backward_ns: int) -> Tensor:
    """Take ``forward_ns``, and in the backward ``backward_ns``."""
    CLOCK.advance(forward_ns)
    return x.clone()


@work.register_fake
def _(x: Tensor, forward_ns: int, backward_ns: int) -> Tensor:
    return torch.empty_like(x)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.ns = inputs[2]


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
    return work(gradient.contiguous(), ctx.ns, 0), None, None


work.register_autograd(_backward, setup_context=_remember)


class Layer(nn.Module):
    """A matrix product and an operation of known length."""

    def __init__(self, forward_ns: int, backward_ns: int) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4, bias=False)
        self.ns = forward_ns, backward_ns

    def forward(self, x: Tensor) -> Tensor:
        return work(self.linear(x), *self.ns)


class Block(nn.Module):
    """Two layers, and an operation of the block's own."""

    def __init__(self, ns: int) -> None:
        super().__init__()
        self.one, self.two = Layer(ns, 2 * ns), Layer(3 * ns, 4 * ns)
        self.ns = ns

    def forward(self, x: Tensor) -> Tensor:
        return work(self.two(self.one(x)), 5 * self.ns, 6 * self.ns)


def make(*ns: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*map(Block, ns))


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Compile each test's graphs anew."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


CONFIG: dict[str, Any] = {
    "targets": [{"match": ".*"}],
    "sample": {"budget": None, "warmup": 1},
    "sinks": {},
    "step": "manual",
    "flops": "off",
}


def train(run: Any, model: nn.Module, given: nn.Module | None = None, config: Any = None) -> Watched:
    """Train some steps under observation, and return what was recorded."""
    watched = Watched(model if given is None else given, clock=CLOCK, config=CONFIG if config is None else config)
    for _ in range(STEPS):
        run(X).sum().backward()
        watched.step()
    watched.session.close()
    return watched


def times(watched: Watched) -> dict[str, dict[str, int]]:
    """Return the times of the last step by fqn and phase."""
    frame = watched.frames[-1]
    check_laws(frame)
    found: dict[str, dict[str, int]] = {}
    for span in frame.spans:
        if span.fqn is not None:
            row = found.setdefault(span.fqn, {})
            row[str(span.phase)] = row.get(str(span.phase), 0) + span.host_ns
    return found


def expected(**ns: int) -> dict[str, dict[str, int]]:
    """Return the times of blocks by their names."""
    found = {}
    for name, one in ns.items():
        found[name] = {"forward": 9 * one, "backward": 12 * one}
        found[f"{name}.one"] = {"forward": one, "backward": 2 * one}
        found[f"{name}.two"] = {"forward": 3 * one, "backward": 4 * one}
    return found


def without_linear(rows: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    return {name: row for name, row in rows.items() if name and not name.endswith("linear")}


def test_each_module_of_one_graph_has_its_forward_and_backward() -> None:
    """An operation of a block's own belongs to the block, not to a layer in it."""
    model = make(100, 1000)
    watched = train(torch.compile(model, fullgraph=True), model)
    rows = times(watched)
    assert without_linear(rows) == expected(**{"0": 100, "1": 1000})
    assert rows[""] == {"forward": 9900, "backward": 13200}
    assert not [note for note in watched.session.summary().notes if "torch.compile" in note]


@pytest.mark.parametrize("in_place", [True, False])
def test_blocks_compiled_one_by_one_share_a_graph_and_have_their_own_times(in_place: bool) -> None:
    """The call around a graph tells which block runs it."""
    model = make(100, 100, 100)
    for at in range(3):
        if in_place:
            model[at].compile()
        else:
            model[at] = torch.compile(model[at])
    assert without_linear(times(train(model, model))) == expected(**{"0": 100, "1": 100, "2": 100})


class Decorated(Block):
    """A block whose forward is wrapped by a function that takes it among others, as in transformers."""

    @staticmethod
    def _wrapped(function: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    forward = _wrapped(Block.forward)


@pytest.mark.parametrize("one_by_one", [True, False])
def test_a_forward_that_a_decorator_wraps_has_the_rows_of_its_module(one_by_one: bool) -> None:
    model = nn.Sequential(Decorated(10), Decorated(10))
    for block in model:
        if one_by_one:
            block.compile()
    run = model if one_by_one else torch.compile(model)
    assert without_linear(times(train(run, model))) == expected(**{"0": 10, "1": 10})
    if not one_by_one:
        alone = Decorated(5)
        rows = times(train(torch.compile(alone), alone))
        assert rows["one"] == {"forward": 5, "backward": 10}


def test_a_compiled_function_around_the_model_has_the_rows_of_the_model() -> None:
    model = make(100)
    rows = times(train(torch.compile(lambda x: model(x)), model))
    assert without_linear(rows) == expected(**{"0": 100})
    assert rows[""] == {"forward": 900, "backward": 1200}


class Trainer:
    """Holds the model that it trains, among other things."""

    def __init__(self, model: nn.Module) -> None:
        self.parts = {"model": model, "loss": nn.Identity()}
        self.models = [model]
        self.model, self.ns = model, (0, 0)

    def forward_step(self, x: Tensor) -> Tensor:
        return work(self.model(x), *self.ns)

    def step_by_name(self, x: Tensor) -> Tensor:
        return work(self.parts["model"](x), *self.ns)

    def step_by_number(self, x: Tensor) -> Tensor:
        return work(self.models[0](x), *self.ns)


@pytest.mark.parametrize("method", ["forward_step", "step_by_name", "step_by_number"])
def test_a_compiled_method_of_an_object_that_holds_the_model_has_the_rows_of_the_model(method: str) -> None:
    model = make(100)
    rows = times(train(torch.compile(getattr(Trainer(model), method)), model))
    assert without_linear(rows) == expected(**{"0": 100})
    assert rows[""] == {"forward": 900, "backward": 1200}


class Pair(nn.Module):
    """Two blocks that a function outside calls."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(10), Block(100)])


@pytest.mark.parametrize("around", [False, True])
def test_modules_that_a_compiled_function_calls_one_by_one_have_their_rows(around: bool) -> None:
    """The function's own operations are in no module; those of a module beside the model, as a loss, neither."""
    pair, loss = Pair(), Layer(1, 2)
    pair.forward = torch.compile(lambda x: work(loss(pair.blocks[1](pair.blocks[0](x))), 5, 6))
    run = pair if around else pair.forward
    watched = train(run, pair)
    rows = times(watched)
    assert without_linear(rows) == expected(**{"blocks.0": 10, "blocks.1": 100})
    rest = {"forward": 1 + 5, "backward": 2 + 6}
    inside = {"forward": 990, "backward": 1320}
    assert rows[""] == ({phase: ns + rest[phase] for phase, ns in inside.items()} if around else inside)
    assert watched.frames[-1].step_ns == sum(inside.values()) + sum(rest.values())
    assert not [note for note in watched.session.summary().notes if "torch.compile" in note]


def test_parts_of_a_function_after_a_graph_break_have_their_rows() -> None:
    """Torch compiles the rest of the function as one of its own."""

    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = Block(1), Block(10), Block(100)

        def forward(self, x: Tensor) -> Tensor:
            x = self.b(self.a(x))
            torch._dynamo.graph_break()
            return self.c(x)

    model = Broken()
    assert without_linear(times(train(torch.compile(model), model))) == expected(a=1, b=10, c=100)


def test_a_model_in_ddp_whose_graph_is_split_has_the_rows_of_its_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DDP has a graph compiled in as many parts as it sends gradients in."""
    monkeypatch.setattr(distributed, "_DEFAULT_FIRST_BUCKET_BYTES", 64)
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        model = make(1, 10, 100)
        parallel = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.0001)
        torch._dynamo.utils.counters.clear()
        rows = times(train(torch.compile(parallel), model, given=parallel))
        assert torch._dynamo.utils.counters["inductor"]["fxgraph_cache_miss"] > 2  # forward and backward, and split
        assert without_linear(rows) == expected(**{"0": 1, "1": 10, "2": 100})
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize("one_by_one", [True, False])
def test_a_model_in_fsdp2_has_the_rows_of_its_modules(tmp_path: Path, one_by_one: bool) -> None:
    """Its hooks gather the parameters outside the graphs of the blocks."""
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        model = make(1, 10, 100)
        mesh = distributed.device_mesh.init_device_mesh("cpu", (1,))
        for part in (*model, model):
            if one_by_one and part is not model:
                part.compile()
            fully_shard(part, mesh=mesh)
        rows = times(train(model if one_by_one else torch.compile(model), model))
        assert without_linear(rows) == expected(**{"0": 1, "1": 10, "2": 100})
    finally:
        distributed.destroy_process_group()


def test_a_layer_computed_again_in_a_graph_is_recompute() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.last = Layer(7, 11), Layer(1, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(checkpoint(self.inner, x, use_reentrant=False))

    model = Checkpointed()
    rows = times(train(torch.compile(model, fullgraph=True), model))
    assert rows["inner"] == {"forward": 7, "backward": 11, "recompute": 7}
    assert rows["last"] == {"forward": 1, "backward": 1}


def test_a_module_that_runs_several_times_in_a_graph_has_as_many_calls_as_in_an_eager_model() -> None:
    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block(1)

        def forward(self, x: Tensor) -> Tensor:
            return self.block.one(self.block(self.block(x)))

    def calls(run: Any) -> Counter[tuple[str, str]]:
        model = Again()
        found = Counter[tuple[str, str]]()
        for span in train(run(model), model).frames[-1].spans:
            if span.fqn:
                found[span.fqn, str(span.phase)] += span.calls
        return found

    assert calls(torch.compile) == calls(lambda model: model)


def test_the_default_configuration_opens_the_blocks() -> None:
    model = make(100, 100, 100)
    config = {"sample": {"budget": None, "warmup": 1}, "sinks": {}, "step": "manual", "flops": "off"}
    summary = train(torch.compile(model), model, config=config).session.summary()
    means = {(row.name, row.phase): row.mean_ns for row in summary.rows}
    assert means["0-2", Phase.FORWARD] == 2700
    assert means["0-2", Phase.BACKWARD] == 3600
    assert next(row.calls for row in summary.rows if (row.name, row.phase) == ("0-2", Phase.FORWARD)) == 9


def test_a_session_changes_no_graph_and_no_bit_and_leaves_the_code_as_it_was() -> None:
    def gradients(observed: bool) -> tuple[list[Tensor], int, list[Any]]:
        torch._dynamo.reset()
        model = make(1, 2)
        run = torch.compile(model, fullgraph=True)
        counters = torch._dynamo.utils.counters
        counters.clear()
        if observed:
            train(run, model, config=CONFIG | {"flops": "auto"})
        else:
            for _ in range(STEPS):
                run(X).sum().backward()
        from torch._inductor.codecache import PyCodeCache

        codes = [module.Runner.call.__code__ for module in PyCodeCache.modules[-2:]]
        found = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        return found, counters["stats"]["unique_graphs"], [code.co_names for code in codes]

    bare, bare_graphs, bare_names = gradients(False)
    ours, our_graphs, our_names = gradients(True)
    assert all(map(torch.equal, bare, ours))
    assert bare_graphs == our_graphs == 1
    assert bare_names == our_names


def test_a_model_compiled_before_the_session_is_timed_whole_with_the_reason() -> None:
    model = make(100)
    run = torch.compile(model)
    run(X).sum().backward()
    watched = train(run, model)
    assert times(watched) == {"": {"forward": 900, "backward": 1200}}
    (note,) = [note for note in watched.session.summary().notes if "no rows" in note]
    assert "compiled it before autoprof.instrument" in note


def test_a_graph_that_autoprof_fails_to_read_has_that_reason() -> None:
    models = {("a", "b"): make(100)}
    watched = train(torch.compile(lambda x: models["a", "b"](x)), models["a", "b"])
    (note,) = [note for note in watched.session.summary().notes if "torch.compile" in note]
    assert "autoprof could not read the graph (KeyError: " in note


def test_a_graph_whose_file_is_gone_has_that_reason() -> None:
    handle = follow_graphs(lambda graph: Path(graph.function.__globals__["__file__"]).unlink())
    model = make(100)
    watched = train(torch.compile(model), model)
    handle.remove()
    assert times(watched) == {"": {"forward": 900, "backward": 1200}}
    (note,) = [note for note in watched.session.summary().notes if "no rows" in note]
    assert "autoprof could not read the graph (FileNotFoundError: " in note


@pytest.mark.parametrize("word", ["outside", "off"])
def test_the_key_compile_has_compiled_modules_timed_whole(word: str) -> None:
    model = make(100)
    watched = train(torch.compile(model), model, config=CONFIG | {"compile": word})
    assert times(watched) == {"": {"forward": 900, "backward": 1200}}
    assert any(f"compile: {word}" in note for note in watched.session.summary().notes)


PROGRAM = """
import sys
import torch
from test_graphs_inductor import make, train, times, X
model = make(100)
run = torch.compile(model)
if sys.argv[1] == "bare":
    run(X).sum().backward()
else:
    watched = train(run, model)
    print(times(watched), *[note for note in watched.session.summary().notes if "no rows" in note])
counters = torch._dynamo.utils.counters["inductor"]
print("misses", counters["fxgraph_cache_miss"] + torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_miss"])
"""


def run_program(python: ForkingPython, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    command = [*python.command, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_names_are_known_to_a_later_process_that_takes_the_graph_from_the_cache(
    forking_python: ForkingPython,
) -> None:
    first, second = run_program(forking_python, "observed"), run_program(forking_python, "observed")
    assert "'0.one'" in first
    assert first.splitlines()[0] == second.splitlines()[0]
    assert "misses 0" in second


def test_a_graph_from_the_cache_of_another_hierarchy_has_the_names_of_its_own() -> None:
    """Torch's cache does not know names: the same operations under other names are the same graph."""

    class Renamed(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            for layer in self:
                x = layer(x)
            return x

    first = make(100, 1000)
    train(torch.compile(first), first)
    torch._dynamo.reset()
    misses = torch._dynamo.utils.counters["inductor"]["fxgraph_cache_miss"]
    renamed = Renamed(OrderedDict(left=nn.Sequential(Block(100)), right=Block(1000)))
    rows = without_linear(times(train(torch.compile(renamed), renamed)))
    assert torch._dynamo.utils.counters["inductor"]["fxgraph_cache_miss"] == misses
    left = expected(**{"left": 100, "left.0": 100})
    assert rows == expected(right=1000) | {
        name: row for name, row in left.items() if name not in ("left.one", "left.two")
    }


def test_two_modules_that_were_one_where_the_cached_graph_is_from_have_the_times_of_its_calls() -> None:
    class Operation(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return work(x, 5, 7)

    class Twice(nn.Module):
        def __init__(self, *inner: nn.Module) -> None:
            super().__init__()
            self.linear, self.inner = nn.Linear(4, 4, bias=False), nn.ModuleList(inner)

        def forward(self, x: Tensor) -> Tensor:
            x = self.linear(x)
            for at in range(2):
                x = self.inner[at % len(self.inner)](x)
            return x

    one = Twice(Operation())
    assert times(train(torch.compile(one), one))["inner.0"] == {"forward": 10, "backward": 14}
    torch._dynamo.reset()
    two = Twice(Operation(), Operation())
    rows = times(train(torch.compile(two), two))
    assert rows["inner.0"] == rows["inner.1"] == {"forward": 5, "backward": 7}


def test_a_graph_from_the_cache_of_a_run_without_autoprof_has_the_rows_of_its_modules(
    forking_python: ForkingPython,
) -> None:
    """Torch's cache is the same with and without autoprof, in both directions; the names are kept for a third run."""
    run_program(forking_python, "bare")
    later = run_program(forking_python, "observed")
    expected_rows = expected(**{"0": 100})
    for name in expected_rows:
        assert f"'{name}': {expected_rows[name]}" in later
    assert "misses 0" in later
    assert "no rows" not in later
    assert later == run_program(forking_python, "observed")


class Dropped(nn.Module):
    """Two blocks, random numbers, and operations that only the backward has."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Block(3), Block(50)

    def forward(self, x: Tensor) -> Tensor:
        x = checkpoint(self.a, x, use_reentrant=False)
        return self.b(x) + x.detach()


def fill_cache(make_model: Any) -> None:
    """Compile a model without autoprof, and have torch forget it but for its cache."""
    torch.manual_seed(0)
    torch.compile(make_model())(X).sum().backward()
    torch._dynamo.reset()


def test_names_of_a_cached_graph_are_those_of_a_graph_that_is_compiled() -> None:
    model = Dropped()
    cold = times(train(torch.compile(model), model))
    for notes in Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).rglob("*.autoprof.json"):
        notes.unlink()
    naming._notes.clear()
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    model = Dropped()
    warm = train(torch.compile(model), model)
    assert times(warm) == cold
    assert cold["a"]["recompute"] == 27
    assert counters["aot_autograd"]["autograd_cache_hit"] == 1
    assert not counters["inductor"]["fxgraph_cache_miss"]
    assert not [note for note in warm.session.summary().notes if "torch.compile" in note]


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_graph_from_the_cache_has_the_bits_and_the_graphs_of_a_run_without_autoprof(dynamic: bool) -> None:
    def gradients(observed: bool) -> list[Tensor]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = nn.Sequential(make(1), nn.Dropout(0.5))
        run = torch.compile(model, dynamic=dynamic)
        torch._dynamo.utils.counters.clear()
        watched = Watched(model, clock=CLOCK, config=CONFIG) if observed else None
        for size in (2, 3, 2, 5):
            run(torch.ones(size, 4)).sum().backward()
            if watched is not None:
                watched.step()
        if watched is not None:
            watched.session.close()
            assert "0.0.one" in times(watched)
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
        return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]

    graphs: list[int] = []
    gradients(False)
    bare, ours = gradients(False), gradients(True)
    assert all(map(torch.equal, bare, ours))
    assert graphs[-1] == graphs[-2]


def test_a_cached_graph_that_cannot_be_traced_again_has_no_names_and_the_reason(monkeypatch: Any) -> None:
    """The note is one line: how many modules, of which, and why."""
    fill_cache(lambda: make(100))
    monkeypatch.setattr(naming, "retrace", lambda *_args, **_kwargs: 1 / 0)
    model = make(100)
    watched = train(torch.compile(model), model)
    assert times(watched) == {"": {"forward": 900, "backward": 1200}}
    (note,) = [note for note in watched.session.summary().notes if "no rows" in note]
    assert note.startswith("torch.compile: 5 modules of '0.*' have no rows: torch took the graph from a cache")


def test_a_cached_graph_of_which_another_text_is_traced_has_no_names(monkeypatch: Any) -> None:
    fill_cache(lambda: make(100))
    text_of = retrace.text_of
    monkeypatch.setattr(retrace, "text_of", lambda printed: text_of(printed) + "another")
    model = make(100)
    assert times(train(torch.compile(model), model)) == {"": {"forward": 900, "backward": 1200}}


def test_a_cached_graph_whose_passes_ask_other_ranks_is_not_traced_again(monkeypatch: Any) -> None:
    """The other ranks may have names, and would not answer."""
    asked: list[Any] = []

    def decide(_graph: Any, saved: Any) -> Any:
        asked.append(saved)
        return saved

    monkeypatch.setattr("torch._functorch.partitioners._sync_decision_cross_ranks", decide)
    with torch._functorch.config.patch(_sync_decision_cross_ranks=True):
        fill_cache(lambda: make(100))
        assert len(asked) == 1
        model = make(100)
        assert times(train(torch.compile(model), model)) == {"": {"forward": 900, "backward": 1200}}
        assert len(asked) == 1


def test_kernels_whose_modules_are_not_certain_have_a_row_of_their_own(monkeypatch: Any) -> None:
    fill_cache(lambda: make(100))
    calls_of = naming.calls_of
    monkeypatch.setattr(
        naming, "calls_of", lambda *args: [(name, nodes if "mm" in name else None) for name, nodes in calls_of(*args)]
    )
    model = make(100)
    frame = train(torch.compile(model), model).frames[-1]
    check_laws(frame)
    rows = Counter[str]()
    for span in frame.spans:
        if span.name == "Sequential/[kernels without names]":
            rows[str(span.phase)] += span.host_ns
    assert rows == {"forward": 900, "backward": 1200}
