"""A compiled model is timed as a whole, whichever of its two objects is given, and whenever it is compiled."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from attached import hooks_of
from engine_laws import Watched, check_laws, everything
from torch import Tensor, nn

import autoprof
from autoprof import Phase
from autoprof.testing import FakeClock

pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf"
)  # dynamo asks for it
FORWARD_NS, BACKWARD_NS, REST_NS = 7_000, 11_000, 1_000
X = torch.ones(2, 4)


class Work(torch.autograd.Function):
    """Takes exactly so long, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, clock: FakeClock) -> Tensor:
        ctx.clock = clock
        clock.advance(FORWARD_NS)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        ctx.clock.advance(BACKWARD_NS)
        return gradients[0] * 2, None


class Net(nn.Module):
    """Two layers around a function that dynamo leaves out of its graphs."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        self.work = torch.compiler.disable(lambda x: Work.apply(x, clock))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.work(self.first(x)))


class Graphs:
    """A backend that counts its graphs."""

    def __init__(self) -> None:
        torch._dynamo.reset()
        self.count = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Any:
        self.count += 1
        return graph


Run = Callable[[Tensor], Tensor]


def wrapper_exists(model: nn.Module, backend: Graphs, watch: Callable[[nn.Module], None]) -> Run:
    run = torch.compile(model, backend=backend)
    watch(model)
    return run


def wrapper_given(model: nn.Module, backend: Graphs, watch: Callable[[nn.Module], None]) -> Run:
    run = torch.compile(model, backend=backend)
    watch(run)
    return run


def wrapper_made_later(model: nn.Module, backend: Graphs, watch: Callable[[nn.Module], None]) -> Run:
    watch(model)
    return torch.compile(model, backend=backend)


def in_place_later(model: nn.Module, backend: Graphs, watch: Callable[[nn.Module], None]) -> Run:
    watch(model)
    model.compile(backend=backend)
    return model


def forward_replaced(model: nn.Module, backend: Graphs, watch: Callable[[nn.Module], None]) -> Run:
    model.forward = torch.compile(model.forward, backend=backend)
    watch(model)
    return model


def around_a_wrapper(model: nn.Module, backend: Graphs, watch: Callable[[nn.Module], None]) -> Run:
    run = torch.compile(nn.DataParallel(model), backend=backend)
    watch(model)
    return run


WAYS = [
    wrapper_exists,
    wrapper_given,
    wrapper_made_later,
    in_place_later,
    forward_replaced,
    around_a_wrapper,
]
STEPS = 6


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def train(run: Run, clock: FakeClock, model: nn.Module, end_step: Callable[[], None], steps: int = STEPS) -> None:
    """Train with time between the call, the backward pass and the update."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        loss = run(X).square().mean()
        clock.advance(REST_NS)
        loss.backward()
        clock.advance(REST_NS)
        optimizer.step()
        optimizer.zero_grad()
        end_step()


def result(model: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def times(frame: Any, name: str) -> dict[Phase, list[int]]:
    """Return the times of the spans of this name."""
    found: dict[Phase, list[int]] = {}
    for span in frame.spans:
        if span.name == name:
            found.setdefault(span.phase, []).append(span.host_ns)
    return found


@pytest.mark.parametrize("step", ["manual", "auto"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_compiled_model_has_its_forward_and_backward(way: Any, step: str) -> None:
    """Under its class's name, exactly; as many graphs and the same bits as without a session."""
    clock, backend = FakeClock(), Graphs()
    bare = Net(clock)
    train(way(bare, backend, lambda _: None), clock, bare, lambda: None)
    graphs, clock, backend = backend.count, FakeClock(), Graphs()
    model, watched = Net(clock), list[Watched]()
    rules = [{"match": "", "name": "Net"}, {"match": "first|last"}]
    config = everything(targets=rules, step=step)
    run = way(model, backend, lambda given: watched.append(Watched(given, clock=clock, config=config)))
    train(run, clock, model, watched[0].step if step == "manual" else lambda: None)
    watched[0].session.close()
    assert graphs > 1
    assert backend.count == graphs
    assert all(torch.equal(one, other) for one, other in zip(result(model), result(bare), strict=True))
    frames = watched[0].sink.frames
    assert len(frames) == STEPS
    for frame in frames[1:]:
        check_laws(frame)
        assert times(frame, "Net") == {Phase.FORWARD: [FORWARD_NS], Phase.BACKWARD: [BACKWARD_NS]}
    assert not any("never called" in note for note in watched[0].session.summary().notes)


@pytest.mark.parametrize("way", [wrapper_given, in_place_later], ids=lambda way: way.__name__)
def test_the_default_configuration_sees_a_compiled_model(way: Any) -> None:
    """Its rows, its batches, and no advice to call what is called."""
    clock, backend, watched = FakeClock(), Graphs(), list[Watched]()
    model = Net(clock)
    config = {"sinks": {}, "sample": {"budget": None, "warmup": 1}, "flops": "off"}
    run = way(model, backend, lambda given: watched.append(Watched(given, clock=clock, config=config)))
    train(run, clock, model, lambda: None, 30)
    watched[0].session.close()
    summary = watched[0].session.summary()
    rows = {(row.name, row.phase): row for row in summary.rows}
    assert rows["Net", Phase.FORWARD].mean_ns == FORWARD_NS
    assert rows["Net", Phase.BACKWARD].mean_ns == BACKWARD_NS
    assert rows["Net", Phase.FORWARD].calls == rows["Net", Phase.FORWARD].steps == summary.steps
    assert not [note for note in summary.notes if "never called" in note]
    (note,) = (note for note in summary.notes if "no rows" in note)
    assert "another backend than inductor" in note


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("later", [True, False])
def test_blocks_compiled_one_by_one_are_timed_one_by_one(in_place: bool, later: bool) -> None:
    """As torch's documentation advises for models of many equal blocks."""

    def compile_blocks(model: Any) -> None:
        for i, block in enumerate(model):
            if in_place:
                block.compile(backend=backend)
            else:
                model[i] = torch.compile(block, backend=backend)

    clock, backend = FakeClock(), Graphs()
    model = nn.Sequential(Net(clock), Net(clock))
    if not later:
        compile_blocks(model)
    with Watched(model, clock=clock) as watched:
        if later:
            compile_blocks(model)
        train(model, clock, model, watched.step)
        frames = watched.frames
    for frame in frames[1:]:
        check_laws(frame)
        for name in ("0", "1"):
            assert times(frame, name) == {Phase.FORWARD: [FORWARD_NS], Phase.BACKWARD: [BACKWARD_NS]}
        assert times(frame, "Sequential") == {Phase.FORWARD: [2 * FORWARD_NS], Phase.BACKWARD: [2 * BACKWARD_NS]}


def test_a_closed_session_leaves_nothing_on_a_compiled_model() -> None:
    """Neither hooks, on the model or its wrapper, nor replaced functions; also where it closes inside a call."""
    clock, backend = FakeClock(), Graphs()
    compile_method, model, block = nn.Module.compile, Net(clock), Net(clock)
    run: Any = torch.compile(model, backend=backend)
    made = type(run).__init__
    both = nn.Sequential(model, block)
    block.compile(backend=backend)
    own_call = block._compiled_call_impl
    watched, calls = Watched(both, clock=clock), list[int]()
    model.work = torch.compiler.disable(lambda x: (watched.session.close(), calls.append(1), x)[-1])
    run(X)
    assert calls
    for module in [run, *both.modules()]:
        assert not any(hooks_of(module).values())
    assert block._compiled_call_impl is own_call
    assert nn.Module.compile is compile_method
    assert type(run).__init__ is made


def test_a_compiled_function_around_the_model_is_noted_once() -> None:
    """Its forward is in no span; the note says which call is missing and why, and no other note advises otherwise."""
    clock, backend = FakeClock(), Graphs()
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

    @torch.compile(backend=backend)
    def call(x: Tensor) -> Tensor:
        return model(x)

    config = {"sinks": {}, "sample": {"budget": None, "warmup": 1}, "flops": "off"}
    with Watched(model, clock=clock, config=config) as watched:
        train(call, clock, model, lambda: None, 30)
        notes = watched.session.summary().notes
    (note,) = [note for note in notes if "called" in note]
    assert "A function around the model is compiled" in note
    assert backend.count == 1


class Called(nn.Module):
    """A layer with a ``__call__`` of its own, as those of transformers have for checkpointing."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def __call__(self, *args: Any) -> Any:
        return super().__call__(*args)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def test_layers_with_a_call_of_their_own_are_compiled_once() -> None:
    """Torch guards their graph by an attribute of ``nn.Module`` and, from 2.15 on, of their class."""
    backend = Graphs()
    model = nn.Sequential(Called(), Called())
    run = torch.compile(model, backend=backend, fullgraph=True)
    with Watched(model, config=everything(step="manual")) as watched:
        for _ in range(4):
            run(X).sum().backward()
            watched.step()
    assert backend.count == 1


class CalledDerived(Called):
    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * 2


class Plain(nn.Module):
    """A class without a call of its own, from which one with such a call is derived."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


class PlainWithCall(Plain):
    def __call__(self, *args: Any) -> Any:
        return super().__call__(*args)


@pytest.mark.parametrize("kind", [CalledDerived, PlainWithCall])
@pytest.mark.parametrize("late", [False, True], ids=["watched first", "compiled first"])
def test_a_call_between_a_class_and_its_parents_is_compiled_once(kind: type[nn.Module], late: bool) -> None:
    """The call and the forward may be of different classes, and the graph may be older than the session."""
    backend = Graphs()
    model = nn.Sequential(kind(), Plain(), kind())
    run = torch.compile(model, backend=backend, fullgraph=True)
    if late:
        run(X)
    with Watched(model, config=everything(step="manual")) as watched:
        for _ in range(4):
            run(X).sum().backward()
            watched.step()
    assert backend.count == 1


def test_eager_layers_with_a_call_of_their_own_keep_their_rows_once_torch_has_compiled() -> None:
    """No graph guards what their calls are marked by."""
    backend = Graphs()
    model = nn.Sequential(Called(), nn.Linear(4, 4))
    run = torch.compile(lambda x: x * 2, backend=backend)
    with Watched(model, config=everything(step="manual")) as watched:
        for _ in range(5):
            run(model(X)).sum().backward()
            watched.step()
        assert not watched.session.summary().notes
    assert {"0", "0.inner", "1"} <= {span.fqn for span in watched.frames[-1].spans}


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def forward_of_its_own(block: nn.Module) -> None:
    forward = block.forward
    block.forward = lambda x: forward(x) * 2


def hook_of_its_own(block: nn.Module) -> None:
    block.register_forward_hook(lambda _module, _inputs, output: output * 2)


@pytest.mark.parametrize("change", [forward_of_its_own, hook_of_its_own])
@pytest.mark.parametrize("late", [False, True], ids=["watched first", "compiled first"])
def test_a_block_that_dynamo_traces_through_its_call_is_compiled_once(
    change: Callable[[nn.Module], None], late: bool
) -> None:
    """As accelerate, exported modules and activation checkpointing of transformers make them."""
    backend = Graphs()
    model = nn.Sequential(Scaled(), Scaled())
    for block in model:
        change(block)
    run = torch.compile(model, backend=backend, fullgraph=True)
    if late:
        run(X)
    with Watched(model, config=everything(step="manual")) as watched:
        for _ in range(4):
            run(X).sum().backward()
            watched.step()
    assert backend.count == 1


def test_compiled_autograd_traces_no_mark() -> None:
    """It compiles the hooks of nodes into its graph: with ``fullgraph`` a mark in C would end the training."""
    import torch._dynamo.compiled_autograd

    backend = Graphs()
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    with Watched(model, config=everything(step="manual")) as watched:
        for _ in range(4):
            loss = model(X).sum()
            with torch._dynamo.compiled_autograd._enable(torch.compile(backend=backend, fullgraph=True)):
                loss.backward()
            model.zero_grad()
            watched.step()
    assert backend.count == 1
    assert {"", "0", "1", "2"} <= {span.fqn for span in watched.frames[-1].spans}


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        torch._dynamo.graph_break()
        return x.relu()


def compiled_model(model: nn.Module, _optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    run = torch.compile(model, backend="eager")
    return lambda: run(X).sum().backward()


def compiled_update(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    update: Callable[[], None] = torch.compile(optimizer.step, backend="eager")

    def step() -> None:
        model(X).sum().backward()
        update()

    return step


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")  # torch 2.13 compiles one itself
@pytest.mark.parametrize("program", [compiled_model, compiled_update])
def test_no_frame_of_ours_is_compiled(
    program: Callable[[nn.Module, torch.optim.Optimizer], Callable[[], None]],
) -> None:
    """After a graph break torch compiles each function that is called, and the hooks of an optimizer with its step."""
    from torch._dynamo import convert_frame

    compiled: list[str] = []
    handle = convert_frame.register_bytecode_hook(lambda code, _made: compiled.append(code.co_filename))
    model = nn.Sequential(Broken(), Broken())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)
    try:
        with autoprof.instrument(model, {"sinks": {}}, optimizer=optimizer):
            step = program(model, optimizer)
            for _ in range(6):
                step()
    finally:
        handle.remove()
    assert compiled
    ours = os.path.dirname(autoprof.__file__) + os.sep  # a clone may lie in a folder of this name
    assert not [name for name in compiled if name.startswith(ours)]
