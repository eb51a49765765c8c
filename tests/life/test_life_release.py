"""A session keeps nothing of the program's alive: not after its end, and during training no longer than torch does."""

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from attached import optimizer_hooks
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import autoprof
from autoprof.base.process import replace
from autoprof.session.session import Session

References = dict[str, "weakref.ref[Any]"]
"""Weak references to the objects of a training, by name."""
WIDTH = 8


@autoprof.timed("Net/Mix")
def mix(x: Tensor) -> Tensor:
    """Return the input, timed by a decorator."""
    return x + 1


class Net(nn.Module):
    """A model with a fused layer, a checkpointed one, repeated ones and a loss inside."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(WIDTH, 2, WIDTH, batch_first=True)
        self.blocks = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        self.again = nn.Linear(WIDTH, WIDTH)
        self.inner_loss = nn.L1Loss()

    def forward(self, x: Tensor) -> Tensor:
        x = mix(self.blocks(self.encoder(x[:, None])[:, 0]))
        out: Tensor = checkpoint(self.again, x, use_reentrant=False)
        return out + self.inner_loss(out, torch.zeros_like(out))


class Mark:
    """An object that a node of an autograd graph holds: it exists as long as the graph."""

    def __call__(self, *_gradients: Any) -> None:
        """Do nothing: it is a hook of the node."""


def graph_of(tensor: Tensor) -> weakref.ref[Any]:
    """Return a reference that is dead once the graph behind a tensor is freed."""
    mark = Mark()
    assert tensor.grad_fn is not None
    tensor.grad_fn.register_hook(mark)
    return weakref.ref(mark)


Open = Callable[[nn.Module, Any], Session]
"""Opens the session of a model and its optimizer."""


def train(open_session: Open, steps: int = 12) -> tuple[Session, References]:
    """Train a model, end the session, and drop all but the session; return references to what was dropped."""
    model, criterion = Net(), nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4)
    data = TensorDataset(torch.randn(2 * steps, WIDTH), torch.randn(2 * steps, WIDTH))
    session = open_session(model, optimizer)
    loader = session.loader(DataLoader(data, batch_size=2))
    references: References = {}
    with session:
        for x, y in loader:
            optimizer.zero_grad()
            output = model(x)
            loss = criterion(output, y)
            references["graph"] = graph_of(output)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            session.log(loss=loss, samples=2)
            session.step()
        with session.pause("evaluation"), torch.no_grad(), autoprof.span("Evaluation"):
            model.eval()(x)
    weight = model.again.weight
    held = {
        "model": model, "layer": model.blocks[1], "parameter": weight, "gradient": weight.grad, "optimizer": optimizer,
        "state": optimizer.state[weight]["exp_avg"], "scheduler": scheduler, "criterion": criterion, "data": data,
        "loader": loader, "batch": x, "target": y, "output": output, "loss": loss,
    }  # fmt: skip
    return session, references | {name: weakref.ref(one) for name, one in held.items()}


def alive(references: References) -> set[str]:
    """Return the names of the objects that exist."""
    return {name for name, reference in references.items() if reference() is not None}


@contextmanager
def without_collector() -> Iterator[None]:
    """Free objects by their reference counts alone inside the block."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class NoSession(Session):
    """Records nothing: the bare program."""


@pytest.fixture(autouse=True)
def _first_use() -> None:
    """Have torch build what it builds once in a process, and keeps."""
    train(lambda *_: NoSession())


def config(**changes: Any) -> dict[str, Any]:
    """Return a configuration without sinks and FLOPs, changed."""
    return {"sinks": {}, "sample": {"budget": None, "warmup": 0}, "flops": "off", **changes}


RULES = [{"match": r"blocks\.\d", "memory": True, "detail": "shapes"}, {"match": "encoder|again"}]
CONFIGS: dict[str, dict[str, Any]] = {
    "the default": {"sinks": {}},
    "every step": config(),
    "rules": config(targets=RULES),
    "by itself": config(step="auto"),
    "manual": config(step="manual"),
    "each third step": config(sample={"every": 3, "warmup": 1}),
    "FLOPs": config(flops="auto"),
    "functions": config(functions=[{"path": "torch.nn.functional:mse_loss", "name": "Loss/MSE"}]),
    "default sinks": {"sample": {"budget": None}, "flops": "off"},
    "all files": config(sinks={"jsonl": {}, "prometheus": {"port": 0}}),
    "flight recorder": config(sinks={"jsonl": {}}, flight_recorder={"mode": "on"}),
    "a deep capture": config(sinks={"jsonl": {}}, deep={"steps": [4, 6]}),
    "off": {"enabled": False},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_closed_session_keeps_nothing_of_the_training(name: str, tmp_path: Path) -> None:
    """All of it is freed at once, without the garbage collector, while the program still holds the session."""
    chosen = {**CONFIGS[name], "output": str(tmp_path)}
    with without_collector():
        session, references = train(lambda model, optimizer: autoprof.instrument(model, chosen, optimizer=optimizer))
        assert alive(references) == set()
    assert (session.summary().steps > 0) is (name != "off")


def test_a_loader_that_the_program_keeps_does_not_keep_the_model() -> None:
    """The wrapper of ``session.loader`` outlives the session, and so may an iterator of it."""
    model = nn.Linear(WIDTH, 1)
    session = autoprof.instrument(model, config())
    loader = session.loader(DataLoader(TensorDataset(torch.ones(4, WIDTH))))
    batches = iter(loader)
    for _ in range(2):
        model(next(batches)[0]).sum().backward()
        session.step()
    session.close()
    reference = weakref.ref(model)
    with without_collector():
        del model, session
        assert reference() is None
    assert len(list(batches)) == 2
    assert len(list(loader)) == 4


# From one session to the next.


def counts() -> dict[str, int]:
    """Return the number of objects, of torch's hooks and of replaced functions, by kind."""
    from torch.nn.modules import module as module_globals

    tables = [getattr(module_globals, name) for name in vars(module_globals) if name.startswith("_global_")]
    gc.collect()
    objects = gc.get_objects()
    return {
        "hooks": len(optimizer_hooks()) + sum(len(table) for table in tables if isinstance(table, dict)),
        "replaced functions": len(replace.held),
        "objects of ours": sum(str(type(one).__module__).startswith("autoprof") for one in objects),
        "objects": sum(type(one) is not weakref.ReferenceType for one in objects),  # a fixture here makes some
    }


REPLACED: list[Callable[[], Any]] = [
    lambda: nn.Module.__call__, lambda: nn.Module.train, lambda: vars(nn.modules.loss._Loss).get("__call__"),
    lambda: torch.autograd.backward, lambda: torch.autograd.grad, lambda: torch.save, lambda: Tensor.to,
    lambda: Tensor.item, lambda: nn.utils.clip_grad_norm_, lambda: torch.optim.Optimizer.zero_grad,
    lambda: DataLoader.__iter__, lambda: torch.utils.checkpoint.CheckpointFunction.backward,
]  # fmt: skip
"""Functions that sessions replace."""
MORE = 16
"""Sessions that are compared with none: what grows by less does not grow with each, as a cache that fills does."""


@pytest.mark.parametrize("name", ["the default", "rules", "all files"])
def test_many_sessions_leave_the_process_as_a_few_do(name: str, tmp_path: Path) -> None:
    """Models, hooks, wrappers, caches: a search of hyperparameters may go on for days."""
    chosen = {**CONFIGS[name], "output": str(tmp_path)}
    if name == "rules":
        chosen["targets"] = [{"match": r"\d", "memory": True, "detail": "shapes"}]

    def search(rounds: int) -> None:
        for _ in range(rounds):
            model, criterion = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.MSELoss()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            with autoprof.instrument(model, chosen, optimizer=optimizer) as session:
                for _ in range(3):
                    criterion(model(torch.ones(1, 2)), torch.ones(1, 2)).backward()
                    optimizer.step()
                    session.step()

    functions = [function() for function in REPLACED]
    search(4)
    before = counts()
    search(MORE)
    after = counts()
    assert [function() for function in REPLACED] == functions
    grown = {kind: after[kind] - before[kind] for kind in before if after[kind] - before[kind] >= MORE}
    assert grown == {}


# During training.


class Watch:
    """Weak references to the objects of each step, and which of them exist at each point of the program."""

    def __init__(self) -> None:
        self.points: list[tuple[str, frozenset[str]]] = []
        self._references: References = {}

    def add(self, name: str, thing: Tensor) -> None:
        """Follow a tensor, and the graph behind it."""
        self._references[name] = weakref.ref(thing)
        if thing.grad_fn is not None:
            self._references[f"the graph of {name}"] = graph_of(thing)

    def reach(self, point: str) -> None:
        """Note what exists now."""
        self.points.append((point, frozenset(alive(self._references))))


class Layer(nn.Module):
    """A layer that follows its own tensors."""

    def __init__(self, watch: Watch, name: str) -> None:
        super().__init__()
        self.linear, self.name = nn.Linear(WIDTH, WIDTH), name
        self._watch = watch

    def forward(self, x: Tensor) -> dict[str, Any]:
        self._watch.reach(f"{self.name} begins")
        inner = self.linear(x)
        self._watch.add(f"inside {self.name}", inner)
        output: Tensor = inner + 1
        self._watch.add(f"out of {self.name}", output)
        del inner
        self._watch.reach(f"{self.name} ends")
        return {"output": [output]}


class Watched(nn.Module):
    """A model that follows its tensors, with a checkpointed layer and a fused one."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.first, self.again = Layer(watch, "the first layer"), Layer(watch, "the checkpointed layer")
        self.encoder = nn.TransformerEncoderLayer(WIDTH, 2, WIDTH, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)["output"][0]
        x = checkpoint(self.again, x, use_reentrant=False)["output"][0]
        out: Tensor = self.encoder(x[:, None])[:, 0]
        return out


def lifetimes(open_session: Open, steps: int = 10) -> list[tuple[str, frozenset[str]]]:
    """Train, dropping each object as soon as it is used; return which of them existed at each point."""
    torch.manual_seed(0)
    watch = Watch()
    model, criterion = Watched(watch), nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters())
    data = DataLoader(TensorDataset(torch.randn(2 * steps, WIDTH)), batch_size=2)
    with open_session(model, optimizer) as session:
        for number, (x,) in enumerate(session.loader(data)):
            watch.add("x", x)
            output = model(x)
            watch.add("the output", output)
            del x
            watch.reach("the forward is done")
            loss = criterion(output, torch.zeros_like(output))
            watch.add("the loss", loss)
            del output
            watch.reach("the loss is there")
            session.log(loss=loss)
            if number % 3 == 2:
                torch.autograd.grad(loss, list(model.parameters()))
            else:
                loss.backward()
            watch.reach("the backward is done")
            del loss
            watch.reach("the loss is dropped")
            optimizer.step()
            optimizer.zero_grad()
            session.step()
            watch.reach("the step is done")
            if number % 5 == 4:
                with torch.no_grad():
                    watch.add("the evaluated", model.eval()(torch.randn(2, WIDTH)))
                model.train()
                watch.reach("the evaluation is done")
    watch.reach("the end")
    return watch.points


@pytest.mark.parametrize("name", ["every step", "the default", "rules", "each third step"])
def test_no_tensor_and_no_graph_lives_longer_than_without_a_session(name: str) -> None:
    """On a GPU each one would raise the peak. FLOPs are counted apart from the program's own calls."""
    chosen = {**CONFIGS[name], "flops": "off"}
    if "targets" in chosen:
        chosen["targets"] = [{"match": "first", "memory": True, "detail": "shapes"}, {"match": "encoder|again"}]
    with without_collector():
        bare = lifetimes(lambda *_: NoSession())
        assert lifetimes(lambda model, optimizer: autoprof.instrument(model, chosen, optimizer=optimizer)) == bare
