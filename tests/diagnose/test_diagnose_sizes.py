"""The first calls of a module show its hooks and operators, and a step is long only against its inputs."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from autoprof.base.frame import Phase
from autoprof.base.summary import Summary
from autoprof.capture.hooks.sizes import ModuleSize, SizeProbe
from autoprof.capture.recorder import Recorder
from autoprof.targets import Target
from autoprof.testing import FakeClock, open_session
from tests.accounts import unlimited

US = 1_000
WIDTH, ROWS, STEPS = 8, 64, 40
CONFIG = {"targets": [{"match": r"\d"}, {"match": ""}], "sinks": {}, "flops": "off", "monitor": "off"}


class Spend(torch.autograd.Function):
    """Take time forward, and twice that backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, clock: FakeClock, ns: int) -> Tensor:
        ctx.clock, ctx.ns = clock, ns
        clock.advance(ns)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        ctx.clock.advance(2 * ctx.ns)
        return gradients[0] * 2, None, None


class Stage(nn.Linear):
    """A layer that takes time in proportion to the elements that it is given, ``times`` as much as the others."""

    def __init__(self, clock: FakeClock, times: float = 1.0) -> None:
        super().__init__(WIDTH, WIDTH)
        self.clock, self.times = clock, times

    def forward(self, x: Tensor) -> Tensor:
        return Spend.apply(super().forward(x), self.clock, round(x.numel() * self.times * US))  # type: ignore[no-any-return]


class Pyramid(nn.Module):
    """Five layers, each of which gets so many times fewer rows than the one before."""

    def __init__(self, stages: Sequence[nn.Module], fewer: int) -> None:
        super().__init__()
        for name, stage in enumerate(stages):
            self.add_module(str(name), stage)
        self.fewer = fewer

    def forward(self, x: Tensor) -> Tensor:
        for stage in self.children():
            x = stage(x)
            x = x[: max(len(x) // self.fewer, 1)]
        return x


def train(model: nn.Module, clock: FakeClock, rows: Callable[[int], int] = lambda _step: ROWS) -> Summary:
    """Train with inputs of so many rows in each step."""
    with open_session(model, CONFIG, clock=clock) as session:
        for step in range(STEPS):
            model(torch.ones(rows(step), WIDTH)).sum().backward()
            session.step()
    return session.summary()


def accused(summary: Summary) -> list[str | None]:
    """Return what the findings name, abstentions left out."""
    return [one.name for one in summary.findings if one.severity != "info"]


def stages(clock: FakeClock, slow: Stage | None = None) -> list[Stage]:
    """Return five equal layers, or ``slow`` and four others."""
    return [slow or Stage(clock), *(Stage(clock) for _ in range(4))]


@pytest.mark.parametrize(
    "rows",
    [lambda step: 4 * ROWS if step % 5 == 0 else ROWS, lambda step: ROWS + 8 * step],
    ids=["a bucket of longer batches", "a growing length"],
)
def test_a_step_with_larger_inputs_may_take_longer(rows: Callable[[int], int]) -> None:
    clock = FakeClock()
    assert not accused(train(Pyramid(stages(clock), fewer=1), clock, rows))


def test_a_step_that_takes_longer_than_its_inputs_explain_is_found() -> None:
    """Every fifth step a layer takes thirty times as long, with the same inputs."""
    clock = FakeClock()
    slow = Stage(clock)

    def rows(step: int) -> int:
        slow.times = 30.0 if step % 5 == 0 else 1.0
        return ROWS

    assert accused(train(Pyramid(stages(clock, slow), fewer=1), clock, rows)) == ["0"]


def hooked_advice(hook: bool) -> list[str]:
    """Return the advice on five linear layers, of which the gradients of one take forty times the time."""
    clock = FakeClock()
    model = Pyramid(stages(clock), fewer=1)
    for at, stage in enumerate(model.children()):
        stage.register_forward_hook(lambda *_: None)
        if hook:
            times = 40 if at == 2 else 1
            stage.weight.register_hook(lambda _, times=times: clock.advance(times * ROWS * WIDTH * US))
    return [one.next for one in train(model, clock).findings if one.severity != "info"]


def test_a_module_whose_gradients_have_hooks_is_advised_to_look_at_them() -> None:
    first, *_ = hooked_advice(hook=True)
    assert first.startswith("look at the hooks on the gradients of its parameters")
    assert not hooked_advice(hook=False)


class Plain(nn.Linear):
    """Torch's layer but for the time of its backward, which the class of a test gives it."""


@pytest.mark.parametrize(("kind", "named"), [("torch.nn.modules.linear", False), ("models", True)])
def test_the_backward_of_torchs_own_products_is_no_finding(
    kind: str, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradient of a large weight by few samples costs what it costs; in a class of the program it may be code."""
    monkeypatch.setattr(Plain, "__module__", kind)
    clock = FakeClock()
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), Plain(WIDTH, WIDTH))

    def spend(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        clock.advance(ROWS * US)
        return tuple(SlowBackward.apply(x, clock) for x in inputs)

    model[1].register_forward_pre_hook(spend)
    assert bool(accused(train(model, clock))) is named


class SlowBackward(torch.autograd.Function):
    """Takes no time forward, and twenty times that of the module backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, clock: FakeClock) -> Tensor:
        ctx.clock = clock
        return x * 1

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        ctx.clock.advance(20 * ROWS * US)
        return gradients[0], None


class Loop(nn.Module):
    """Adds the rows one by one."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([row * 2 for row in x.unbind()])


def test_the_nodes_and_the_hook_of_a_call_are_noted_once() -> None:
    """One node for the rows, one for each, one for the stack; a hook of torch belongs to the model."""
    sizes: dict[str, ModuleSize] = {}
    model, recorder = Loop(), Recorder(FakeClock())
    model.register_forward_hook(lambda *_: None)
    normed = nn.utils.spectral_norm(nn.Linear(WIDTH, WIDTH))
    for name, module in (("loop", model), ("normed", normed)):
        target = Target(module, name, name, frozenset({Phase.FORWARD}), False, 0)
        SizeProbe(recorder, target, sizes, unlimited()).attach()
        module(torch.ones(ROWS, WIDTH, requires_grad=True))
    assert sizes["loop"].nodes == ROWS + 2
    assert sizes["loop"].hook.startswith("<lambda> (test_diagnose_sizes.py:")
    assert sizes["normed"].hook == ""


def cell_over(feedback: bool) -> nn.Module:
    """Return a model that calls a cell for each row: with the row, or with what the cell made of the one before."""

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(WIDTH, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            state = torch.zeros(1, WIDTH) + x.mean()
            for row in x.split(1):
                state = self.cell(torch.tanh(state) * 2 if feedback else row, state)
            return state

    return Decoder()


@pytest.mark.parametrize("feedback", [True, False])
def test_calls_are_chained_where_all_that_they_take_comes_from_the_one_before(feedback: bool) -> None:
    """The state alone does not chain them: nn.GRU takes all rows in one call."""
    sizes: dict[str, ModuleSize] = {}
    model = cell_over(feedback)
    target = Target(model.cell, "cell", "cell", frozenset({Phase.FORWARD}), False, 0)
    SizeProbe(Recorder(FakeClock()), target, sizes, unlimited()).attach()
    model(torch.ones(4, WIDTH))
    assert sizes["cell"].chained is feedback


@pytest.mark.parametrize("writes", [4, 1, 0])
def test_an_output_that_is_filled_in_place_is_noted(writes: int) -> None:
    """Each write into a slice copies the gradient of the whole tensor in backward; one write is no filling."""

    class Path(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            rows, path = [self.layer(row) for row in x], torch.zeros_like(x)
            for at, row in enumerate(rows[:writes]):
                path[at] = row
            return (path if writes else torch.stack(rows)).transpose(0, 1)

    sizes: dict[str, ModuleSize] = {}
    model = Path()
    for fqn, module in (("", model), ("layer", model.layer)):
        SizeProbe(
            Recorder(FakeClock()), Target(module, fqn, fqn, frozenset({Phase.FORWARD}), False, 0), sizes, unlimited()
        ).attach()
    model(torch.ones(4, WIDTH))
    assert {fqn: size.is_filled for fqn, size in sizes.items()} == {"": writes == 4, "layer": False}


class Named(torch.autograd.Function):
    """A function whose context has a name of its own, in the place of the method of nodes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.name = "spend"
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * 2


def test_a_module_that_ends_with_a_function_of_the_program_is_noted() -> None:
    """Its node is an object of the program's class."""

    class Last(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return Named.apply(super().forward(x))  # type: ignore[no-any-return]

    sizes: dict[str, ModuleSize] = {}
    model = Last(WIDTH, WIDTH)
    SizeProbe(
        Recorder(FakeClock()), Target(model, "", "", frozenset({Phase.FORWARD}), False, 0), sizes, unlimited()
    ).attach()
    model(torch.ones(4, WIDTH))
    assert list(sizes) == [""]
