"""Observing changes nothing: bits, objects, copies, files, hooks, memory, processes, compilation."""

from __future__ import annotations

import copy
import gc
import io
import json
import os
import pickle
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import small_models
import torch
from attached import hooks_of, is_marked
from engine_laws import Watched, check_laws, count, everything
from small_models import MODELS, make, train
from torch import nn
from torch.utils.data import DataLoader, Dataset

import autoprof
from autoprof._capture import recorder as recording
from autoprof.testing import FakeClock


def same_bits(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    """Tell whether two lists of tensors are equal to the last bit."""
    return len(one) == len(other) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("step", ["manual", "auto"])
def test_training_is_the_same_to_the_last_bit(name: str, step: str) -> None:
    """Outputs, gradients, parameters, buffers, random state after three steps, every module in all phases."""
    expected = train(*make(name), 3, lambda: None)
    model, draw = make(name)
    with Watched(model, config=everything(step=step)) as watched:
        found = train(model, draw, 3, watched.step if step == "manual" else lambda: None)
    assert same_bits(found, expected)
    assert len(watched.sink.frames) == 3
    for frame in watched.sink.frames:
        check_laws(frame)
        assert count(frame, autoprof.Phase.BACKWARD)[type(model).__name__] == 1
    assert watched.sink.summary is not None
    assert set(watched.sink.summary.skipped) <= {"steps unfinished at the end"}


@pytest.mark.parametrize("value", [torch.ones(2), None, 3, "text", [torch.ones(1)], {"a": torch.ones(1)}, object()])
def test_a_module_returns_the_very_object_it_made(value: Any) -> None:
    """``module(x) is x``."""
    module = nn.Identity()
    with Watched(module):
        assert module(value) is value


def test_arguments_reach_forward_as_they_were() -> None:
    """Positional and keyword arguments, the very objects."""

    class Takes(nn.Module):
        def forward(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
            return args, kwargs

    module, marker = Takes(), object()
    with Watched(module):
        args, kwargs = module(marker, 1, key=marker)
    assert args == (marker, 1)
    assert kwargs == {"key": marker}


def test_the_users_own_hooks_fire_in_the_same_order() -> None:
    """Before, after, backward, state-dict hooks; registered before instrumenting and after."""

    def run(instrumented: bool) -> list[str]:
        torch.manual_seed(0)
        seen: list[str] = []
        model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())

        def hook(name: str) -> None:
            layer = model[0]
            layer.register_forward_pre_hook(lambda *_: seen.append(f"pre {name}"))
            layer.register_forward_pre_hook(lambda *_: seen.append(f"pre first {name}"), prepend=True)
            layer.register_forward_hook(lambda *_: seen.append(f"post {name}"))
            layer.register_forward_hook(lambda *_: seen.append(f"post first {name}"), prepend=True)
            layer.register_full_backward_pre_hook(lambda *_: seen.append(f"backward pre {name}"))
            layer.register_full_backward_hook(lambda *_: seen.append(f"backward {name}"))

        hook("a")
        watched = Watched(model) if instrumented else None
        hook("b")
        output = model(torch.ones(1, 2, requires_grad=True))
        output.register_hook(lambda _: seen.append("tensor"))
        output.grad_fn.register_prehook(lambda _: seen.append("node"))  # type: ignore[union-attr]
        output.sum().backward()
        if watched:
            watched.session.close()
        model[0](torch.ones(1, 2))
        return seen

    assert run(True) == run(False)


def test_a_users_hook_that_replaces_the_output_is_obeyed() -> None:
    """What counts is what the module hands on."""
    module = nn.Linear(2, 2)
    replaced = torch.ones(1)
    module.register_forward_hook(lambda *_: replaced)
    with Watched(module):
        module.register_forward_pre_hook(lambda _, args: (args[0] * 2,))
        assert module(torch.ones(1, 2)) is replaced


# Copies and pickles.


@pytest.mark.parametrize("step", ["manual", "auto"])
def test_a_deep_copy_is_not_profiled(step: str) -> None:
    """An EMA copy: same results, no spans, no hooks."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with Watched(model, config=everything(step=step)) as watched:
        copied = copy.deepcopy(model)
        twice = copy.deepcopy(copied)
        x = torch.ones(1, 2)
        for other in (copied, twice):
            assert torch.equal(other(x), model(x))
            assert not any(hooks for module in other.modules() for hooks in hooks_of(module).values())
        watched.session.summary()
        assert is_marked(model[0])
        watched.step()
    assert count(watched.frames[0], autoprof.Phase.FORWARD)["0"] == 2


def test_a_deep_copy_made_while_attached_works_after_the_session_is_closed() -> None:
    """And still loses its hooks."""
    model = nn.Linear(2, 2)
    with Watched(model, config=everything(targets=[{"match": ".*", "memory": True}], step="auto")):
        copied = copy.deepcopy(model)
    copied(torch.ones(1, 2)).sum().backward()
    assert not any(hooks_of(copied).values())


def test_a_shallow_copy_of_a_module_can_be_called() -> None:
    """``copy.copy`` shares the hooks; the call is the module's own."""
    model = nn.Linear(2, 2)
    with Watched(model):
        assert torch.equal(copy.copy(model)(torch.ones(1, 2)), model(torch.ones(1, 2)))


LOAD = """
import sys
sys.modules["autoprof"] = None  # importing it raises
sys.path.insert(0, {folder!r})
import torch
model = torch.load({path!r}, weights_only=False)
x = torch.ones(2, 4)
model.train()
y = model(x)
y.sum().backward()
torch.save(torch.save and y.detach(), {out!r})
"""


def test_a_saved_model_loads_where_autoprof_is_not_installed(tmp_path: Path) -> None:
    """``torch.save(model)`` of an instrumented model, read in a process that cannot import autoprof."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    path, out = tmp_path / "model.pt", tmp_path / "out.pt"
    with Watched(model, config=everything(targets=[{"match": ".*", "memory": True}], step="auto")):
        torch.save(model, path)
    code = LOAD.format(folder=os.path.dirname(small_models.__file__), path=str(path), out=str(out))
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=120, cwd=tmp_path)
    assert torch.equal(torch.load(out, weights_only=True), model(torch.ones(2, 4)))


@pytest.mark.parametrize("step", ["manual", "auto"])
def test_a_pickled_model_gives_what_it_gave(step: str) -> None:
    """``pickle`` and ``torch.save``, in this process; saving again is possible too."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    x = torch.ones(2, 4)
    with Watched(model, config=everything(step=step)):
        for _ in range(2):
            loaded = pickle.loads(pickle.dumps(model))
            buffer = io.BytesIO()
            torch.save(loaded, buffer)
            buffer.seek(0)
            again = torch.load(buffer, weights_only=False)
            assert torch.equal(loaded(x), model(x))
            assert torch.equal(again(x), model(x))
            assert torch.equal(copy.deepcopy(again)(x), model(x))


def test_the_state_dict_is_unchanged() -> None:
    """Keys, metadata and values; it loads with ``weights_only``."""
    model = make("conv")[0]
    before = model.state_dict()
    with Watched(model):
        during = model.state_dict()
        assert list(during) == list(before)
        assert during._metadata == before._metadata  # type: ignore[attr-defined]
        assert all(torch.equal(during[key], before[key]) for key in before)
        buffer = io.BytesIO()
        torch.save(during, buffer)
        buffer.seek(0)
        assert list(torch.load(buffer, weights_only=True)) == list(before)
        assert repr(model) == repr(make("conv")[0])


# Memory.


def test_no_tensor_is_kept_alive_after_the_step() -> None:
    """Not even until the next one: input, output, loss and what lies between."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    alive: list[Any] = []
    model[1].register_forward_hook(lambda _m, _a, output: alive.append(weakref.ref(output)))
    gc.disable()
    try:
        with Watched(model) as watched:
            for _ in range(3):
                x = torch.ones(2, 4, requires_grad=True) * 1
                y = model(x)
                loss = y.sum()
                alive.extend(map(weakref.ref, (x, y, loss)))
                loss.backward()
                del x, y, loss
                assert [ref for ref in alive if ref() is not None] == []
                watched.step()
    finally:
        gc.enable()


def test_a_graph_that_is_thrown_away_is_freed_at_once() -> None:
    """Without backward, without the garbage collector, before the step ends."""

    class Holder:
        """Something only the graph keeps alive."""

    class Keeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, holder: Holder) -> torch.Tensor:
            ctx.holder = holder
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return grad, None

    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    gc.collect()
    gc.disable()
    try:
        with Watched(model):
            holder = Holder()
            ref = weakref.ref(holder)
            y = model(Keeps.apply(model(torch.ones(1, 2)), holder))
            del holder
            assert ref() is not None
            del y
            assert ref() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ["mlp", "checkpointed", "checkpointed-reentrant", "structured"])
def test_a_step_leaves_no_reference_cycle(name: str) -> None:
    """The collector finds nothing of ours, so no step is slow for our sake."""
    model, draw = make(name)
    with Watched(model) as watched:

        def step() -> None:
            model(draw()).sum().backward()
            watched.session.log(loss=1.0)
            watched.step()
            watched.session.summary()

        for _ in range(3):
            step()
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for _ in range(3):
                step()
            gc.collect()
            ours = [
                found
                for found in gc.garbage
                if type(found).__module__.startswith("autoprof")
                or getattr(found, "__module__", None) == "autoprof._capture.hooks.module_hooks"
            ]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert ours == []


def test_nothing_that_the_garbage_collector_walks_survives_a_step() -> None:
    """A hundred steps leave as many tracked objects as ten (the sink drops its frames)."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with Watched(model) as watched:

        def run(steps: int) -> int:
            for _ in range(steps):
                model(torch.ones(1, 2)).sum().backward()
                watched.step()
            watched.session.summary()
            watched.sink.frames.clear()
            gc.collect()
            return len(gc.get_objects())

        run(40)
        assert run(100) - run(10) < 20


def test_a_session_that_is_closed_can_be_freed() -> None:
    """Nor does it keep the model."""
    model = nn.Linear(2, 2)
    watched = Watched(model)
    model(torch.ones(1, 2)).sum().backward()
    watched.step()
    watched.session.close()
    refs = [weakref.ref(model), weakref.ref(watched.session)]
    del model, watched
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def test_a_model_that_is_thrown_away_does_not_break_its_session() -> None:
    """Close after ``del model``."""
    model = nn.Linear(2, 2)
    with Watched(model) as watched:
        del model
        gc.collect()
        watched.step()


# Processes and compilation.


class Spying(Dataset):  # type: ignore[type-arg]
    """Say what a worker sees of autoprof."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> dict[str, Any]:
        with autoprof.span("In a worker"):
            self.model(torch.ones(1, 2))
        return {
            "pid": os.getpid(),
            "recording": recording.active is not None,
            "hooks": sum(map(is_marked, self.model.modules())),
        }


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
def test_a_forked_loader_worker_records_nothing_and_writes_no_file(tmp_path: Path) -> None:
    """The session is the parent's: the child has no hooks, no recorder, and its exit touches no file."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    session = autoprof.instrument(model, everything(sinks={"jsonl": {}, "log": {}}, output=str(tmp_path / "runs")))
    loader = DataLoader(Spying(model), num_workers=1, batch_size=None, multiprocessing_context="fork")
    seen = list(session.loader(loader))
    session.step()
    folder = session.folder
    assert folder is not None
    assert json.loads((folder / "run.json").read_text())["ended"] is None
    session.close()
    assert [item["recording"] for item in seen] == [False, False]
    assert [item["hooks"] for item in seen] == [0, 0]
    assert all(item["pid"] != os.getpid() for item in seen)
    assert (folder / "rank0" / "steps.jsonl").read_text().count("\n") == 1
    assert "In a worker" not in (folder / "summary.txt").read_text()


class Layers(nn.Module):
    """Layers, run in a row."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_instrumented_model_is_one_graph_and_never_recompiled() -> None:
    """Hooks are folded away while dynamo traces: as many graphs and breaks as the bare model has."""

    def graphs(instrumented: bool) -> tuple[int, int]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = Layers(3)
        made = []

        def backend(graph: Any, _inputs: Any) -> Any:
            made.append(graph)
            return graph

        watched = Watched(model, config=everything(step="auto")) if instrumented else None
        compiled = torch.compile(model, backend=backend)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            compiled(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if watched:
                watched.step()
        explained = torch._dynamo.explain(model)(torch.ones(2, 4))
        if watched:
            watched.session.close()
        return len(made), explained.graph_break_count

    assert graphs(True) == graphs(False) == (1, 0)


@pytest.mark.filterwarnings("ignore")
def test_a_model_compiled_before_instrumenting_trains_the_same() -> None:
    """The bits are the same, and nothing of it raises."""

    def run(instrumented: bool) -> list[torch.Tensor]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = Layers(2)
        compiled = torch.compile(model, backend="eager")
        compiled(torch.ones(2, 4))
        watched = Watched(model) if instrumented else None
        results = []
        for _ in range(2):
            output = compiled(torch.ones(2, 4))
            output.sum().backward()
            results.append(output.detach())
            if watched:
                watched.step()
        if watched:
            watched.session.close()
        return [*results, *(p.grad for p in model.parameters() if p.grad is not None)]

    assert same_bits(run(True), run(False))


def test_functional_transforms_see_the_model_as_it_is() -> None:
    """``torch.func`` over an instrumented model."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    params = {name: p.detach() for name, p in model.named_parameters()}

    def loss(params: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, params, (x,)).sum()

    x = torch.ones(3, 2)
    expected = torch.func.vmap(torch.func.grad(loss), (None, 0))(params, x)
    with Watched(model) as watched:
        found = torch.func.vmap(torch.func.grad(loss), (None, 0))(params, x)
        watched.step()
        summary = watched.session.summary()
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    check_laws(watched.frames[0])
    assert not [reason for reason in summary.skipped if "failures" in reason]


def test_a_quiet_step_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """The user's line is the user's."""
    model = nn.Linear(2, 2)
    with Watched(model, clock=FakeClock()) as watched:
        model(torch.ones(1, 2)).sum().backward()
        watched.step()
    assert capsys.readouterr() == ("", "")
