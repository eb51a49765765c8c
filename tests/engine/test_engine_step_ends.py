"""Steps end by themselves in the loops that people write: counted within one, with an optimizer given or not."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from engine_laws import check_laws, everything
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import autoprof
from autoprof.base.frame import Phase
from autoprof.testing import FakeClock, ListSink, open_session

ITERATIONS = 12


class Net(nn.Module):
    """An encoder and a decoder, with the interfaces that people call instead of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Sequential(nn.Linear(2, 3), nn.ReLU()), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Any:
        return self.decoder(self.encoder(x))

    def training_step(self, x: Tensor) -> Any:
        return self.forward(x).pow(2).sum()


class Gan(nn.ModuleDict):
    """A generator and a discriminator, never called together."""

    def __init__(self) -> None:
        super().__init__({"g": nn.Linear(2, 2), "d": nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))})


def sgd(*modules: nn.Module) -> Any:
    """Return an optimizer of these modules."""
    return torch.optim.SGD([one for module in modules for one in module.parameters()], lr=0.01)


X = torch.ones(4, 2)
Iteration = Callable[[], None]
Loop = tuple[nn.Module, list[Any], Iteration]


def plain(call: Callable[[Net], Tensor]) -> Callable[[], Loop]:
    """Make a loop that calls the model in this way."""

    def make() -> Loop:
        net = Net()
        optimizer = sgd(net)

        def iteration() -> None:
            optimizer.zero_grad()
            call(net).sum().backward()
            optimizer.step()

        return net, [optimizer], iteration

    return make


def gan(model: Gan, watched: nn.Module, critics: int = 1) -> Loop:
    """A GAN of the shape of pytorch/examples: the discriminator on real and on fake, then the generator."""
    g, d = model["g"], model["d"]
    opt_d, opt_g = sgd(d), sgd(g)
    count = [0]

    def iteration() -> None:
        d.zero_grad()
        d(X).sum().backward()
        fake = g(X)
        d(fake.detach()).sum().backward()
        opt_d.step()
        count[0] += 1
        if count[0] % critics == 0:
            g.zero_grad()
            d(fake).sum().backward()
            opt_g.step()

    return watched, [opt_d, opt_g], iteration


def gan_in_a_dict() -> Loop:
    model = Gan()
    return gan(model, model)


def several_critic_steps() -> Loop:
    model = Gan()
    return gan(model, model, critics=4)


def lbfgs() -> Loop:
    net = Net()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = net(X).pow(2).sum()
        loss.backward()
        return loss

    return net, [optimizer], lambda: optimizer.step(closure)


def in_turn() -> Loop:
    """The parts of a model, each with a forward, a backward and an optimizer of its own."""
    net = Net()
    first, second = sgd(net.encoder), sgd(net.decoder)

    def iteration() -> None:
        for optimizer in (first, second):
            net(X).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    return net, [first, second], iteration


def in_backward() -> Loop:
    net = Net()
    optimizers = {one: torch.optim.SGD([one], lr=0.01) for one in net.parameters()}

    def update(parameter: Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for one in net.parameters():
        one.register_post_accumulate_grad_hook(update)
    return net, [*optimizers.values()], lambda: net(X).sum().backward()


def new_optimizer() -> Loop:
    """The first optimizer gives way to one that is made during the run, as after a part is unfrozen."""
    net = Net()
    used, iterations = [sgd(net)], iter(range(1000))

    def iteration() -> None:
        if next(iterations) == ITERATIONS // 2:
            used[0] = sgd(net)
        net(X).sum().backward()
        used[0].step()
        used[0].zero_grad()

    return net, list(used), iteration


LOOPS: dict[str, Callable[[], Loop]] = {
    "call": plain(lambda net: net(X)),
    "model.training_step(x)": plain(lambda net: net.training_step(X)),
    "encoder and decoder": plain(lambda net: net.decoder(net.encoder(X))),
    "gan in a dict": gan_in_a_dict,
    "several critic steps": several_critic_steps,
    "lbfgs": lbfgs,
    "optimizers in turn": in_turn,
    "in backward": in_backward,
    "new optimizer": new_optimizer,
}


def record(loop: Loop, *, named: bool, around: Callable[[Any, Iteration], None] | None = None, **config: Any) -> Any:
    """Run the loop under a session, and return the session's summary and frames."""
    model, optimizers, iteration = loop
    sink = ListSink()
    config = everything(step="auto", **config)
    given = optimizers if named and optimizers else None
    with open_session(model, config, optimizer=given, clock=FakeClock(tick_ns=1), sinks=[sink]) as session:
        if around is not None:
            around(session, iteration)
        else:
            for _ in range(ITERATIONS):
                iteration()
    for frame in sink.frames:
        check_laws(frame)
    return sink.summary, sink.frames


@pytest.mark.parametrize("named", [True, False], ids=["named", "not named"])
@pytest.mark.parametrize("name", LOOPS)
def test_as_many_steps_are_found_as_there_are_iterations(name: str, named: bool) -> None:
    """Within one, and each in its place: after the first three, all are alike."""
    summary, frames = record(LOOPS[name](), named=named)
    assert abs(len(frames) - ITERATIONS) <= 1
    assert not any("session.step()" in note for note in summary.notes)
    if name != "several critic steps":
        kind: Any = set if name == "lbfgs" else sorted  # it evaluates the model as often as it likes
        shapes = [kind((span.name, str(span.phase)) for span in frame.spans) for frame in frames[3:-1]]
        assert all(shape == shapes[0] for shape in shapes)
    if name != "lbfgs":
        assert all("forward" in str(frame.spans[0].phase) for frame in frames[3:-1])


@pytest.mark.parametrize("inside", [False, True], ids=["", "inside a span"])
@pytest.mark.parametrize("blocks", [0, 1, 5])
def test_work_after_the_loop_is_in_no_step(blocks: int, inside: bool) -> None:
    """The last step ends with the training's work, whatever the program marks long after it."""
    net, clock, sink = Net(), FakeClock(tick_ns=1), ListSink()
    optimizer = sgd(net)
    with open_session(net, everything(step="auto"), clock=clock, sinks=[sink]) as session:
        with autoprof.span("all") if inside else nullcontext():
            for _ in range(ITERATIONS):
                net(X).sum().backward()
                clock.advance(6_000_000)
                optimizer.step()
                clock.advance(4_000_000)
            clock.advance(10_000_000_000)
        for _ in range(blocks):
            with torch.no_grad():
                clock.advance(1_000_000)
    summary = session.summary()
    for frame in sink.frames:
        check_laws(frame)
    assert len(sink.frames) == ITERATIONS
    assert sink.frames[-1].duration_ns < 13_000_000
    assert sum(row.total_ns for row in summary.rows if row.name == "all") < 150_000_000
    assert not summary.skipped


def test_the_last_step_of_a_loop_is_as_long_as_the_others() -> None:
    """The program draws for four times as long as it trains, in each step: also in the last one, which nothing ends."""
    net, clock, sink = Net(), FakeClock(tick_ns=1), ListSink()
    optimizer = sgd(net)
    with open_session(net, everything(step="auto"), clock=clock, sinks=[sink]):
        for _ in range(ITERATIONS):
            net(X).sum().backward()
            clock.advance(10_000_000)
            optimizer.step()
            clock.advance(40_000_000)
    assert [round(frame.duration_ns, -6) for frame in sink.frames[3:]] == [50_000_000] * (ITERATIONS - 3)


class Wrapper(torch.optim.Optimizer):
    """As ``accelerate.optimizer.AcceleratedOptimizer``: an optimizer by its class, the real one inside."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def step(self, closure: Any = None) -> Any:
        return self.optimizer.step(closure)


@pytest.mark.parametrize("given", ["wrapper", "twice wrapped", "list", "dict"])
def test_wrapped_optimizers_are_looked_through(given: str) -> None:
    """Those of Accelerate, Lightning and DeepSpeed hold the real one as an attribute."""
    net, [optimizer], iteration = plain(lambda net: net(X))()
    forms: dict[str, Any] = {
        "wrapper": Wrapper(optimizer),
        "twice wrapped": Wrapper(Wrapper(optimizer)),
        "list": [Wrapper(optimizer)],
        "dict": {"main": optimizer},
    }
    sink = ListSink()
    with open_session(net, everything(step="auto"), optimizer=forms[given], clock=FakeClock(), sinks=[sink]):
        for _ in range(3):
            iteration()
    assert len(sink.frames) == 3
    assert not optimizer._optimizer_step_post_hooks


def test_where_steps_and_optimizer_steps_disagree_the_report_gives_both_numbers() -> None:
    """One optimizer that steps twice in each iteration, without a forward between."""
    net, [optimizer], iteration = plain(lambda net: net(X))()

    def twice() -> None:
        iteration()
        optimizer.step()

    summary, frames = record((net, [optimizer], twice), named=True)
    assert len(frames) == ITERATIONS
    assert any("12 steps" in note and "24" in note and "session.step()" in note for note in summary.notes)


def trainer(net: nn.Module, batches: Any, *, called: nn.Module, ahead: int) -> Callable[..., None]:
    """Return a loop that trains inside ``optimizer.step``, as Lightning does, with batches of a DataLoader."""
    optimizer = sgd(net)

    def closure() -> Tensor:
        loss: Tensor = called(X).sum()
        optimizer.zero_grad()
        loss.backward()
        return loss

    def around(session: Any, iteration: Iteration) -> None:
        fetches = iter(DataLoader(batches))
        fetched = [next(fetches) for _ in range(ahead)]
        while fetched or not ahead:
            batch = next(fetches, None)
            fetched = [*fetched[1:], batch] if batch is not None else fetched[1:]
            if batch is None and not ahead:
                break
            optimizer.step(closure)

    return around


@pytest.mark.parametrize("part", [True, False], ids=["calls a part", "calls the model"])
@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_a_trainer_that_trains_in_the_optimizers_closure_ends_each_step_at_its_fetch(ahead: int, part: bool) -> None:
    """Also where it fetches batches ahead, and calls a part of the module: a step has one update and one fetch."""
    net = nn.Sequential()
    net.add_module("net", nn.Linear(2, 2))
    called = net[0] if part else net
    around = trainer(net, TensorDataset(torch.ones(ITERATIONS, 2)), called=called, ahead=ahead)
    _, frames = record((net, [], lambda: None), named=False, around=around)
    assert len(frames) == ITERATIONS
    assert [sum(span.name == "net" for span in frame.spans) for frame in frames] == [2] * ITERATIONS
    fetches = [sum(span.phase is Phase.DATA for span in frame.spans) for frame in frames]
    assert fetches[2 : ITERATIONS - 1 - ahead] == [1] * (ITERATIONS - 3 - ahead)


@pytest.mark.parametrize(("make", "evaluations"), [(sgd, 1), (lambda net: torch.optim.LBFGS(net.parameters()), 20)])
def test_a_session_that_is_opened_in_the_optimizers_closure_counts_that_step(make: Any, evaluations: int) -> None:
    """As ``autoprof run`` opens it, at the first forward that trains: however often the step calls the closure."""
    net, sink = nn.Sequential(nn.Linear(2, 2)), ListSink()
    optimizer, calls = make(net), [0]
    sessions: list[Any] = []

    def closure() -> Tensor:
        if not sessions:
            config = everything(step="auto")
            sessions.append(open_session(net, config, clock=FakeClock(tick_ns=1), sinks=[sink]))
        loss: Tensor = (net(X) - len(batches)).pow(4).sum()
        optimizer.zero_grad()
        loss.backward()
        calls[0] += 1
        return loss

    batches = []
    for batch in DataLoader(TensorDataset(torch.ones(ITERATIONS, 2))):
        batches.append(batch)
        optimizer.step(closure)
    sessions[0].close()
    assert calls[0] >= evaluations
    assert len(sink.frames) == ITERATIONS
    assert not sink.summary.skipped


class Accumulating(torch.optim.SGD):
    """An optimizer whose step returns at once three times in four."""

    calls = 0

    def step(self, closure: Any = None) -> Any:
        self.calls += 1
        return super().step(closure) if self.calls % 4 == 0 else None


def test_an_update_that_changes_no_parameter_ends_no_step() -> None:
    """From the first real one on; those before it may be steps of an optimizer whose changes cannot be seen."""
    net = Net()
    optimizer = Accumulating(net.parameters(), lr=0.01)

    def iteration() -> None:
        for _ in range(4):
            net(X).sum().backward()
            optimizer.step()

    summary, frames = record((net, [optimizer], iteration), named=True)
    assert abs(len(frames) - 3 - ITERATIONS) <= 1
    assert not any("session.step()" in note for note in summary.notes)


def test_an_update_whose_change_cannot_be_seen_ends_its_step() -> None:
    """A fused optimizer raises no version, also where the program changes parameters itself at times."""
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, fused=True)
    iterations = iter(range(1000))

    def iteration() -> None:
        if next(iterations) % 5 == 4:
            net.load_state_dict(net.state_dict())
        net(X).sum().backward()
        optimizer.step()

    _, frames = record((net, [optimizer], iteration), named=True)
    assert abs(len(frames) - ITERATIONS) <= 1


def test_an_update_of_other_parameters_than_before_ends_its_step() -> None:
    """Most of a model is frozen during the run, and its optimizer stays."""
    net = nn.Sequential(*[nn.Linear(2, 2) for _ in range(40)])
    optimizer = sgd(net)
    iterations = iter(range(1000))

    def iteration() -> None:
        if next(iterations) == ITERATIONS // 2:
            net[:-1].requires_grad_(False)
        net(X).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    _, frames = record((net, [optimizer], iteration), named=True)
    assert abs(len(frames) - ITERATIONS) <= 1
