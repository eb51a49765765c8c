"""Hooks of the program's own run as often, in the order and with the effect that they have on a bare model."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mark_promises import ALL, as_bare, backwards, counting_steps, forwards, train_step, two_layers
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*non-full backward hook"),
    pytest.mark.filterwarnings("ignore:Using a non-full backward hook"),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
    pytest.mark.filterwarnings("ignore:Using non-full backward hooks"),
]

Log = list[str]
Register = Callable[[Any, Log], Any]


def noting(log: Log, text: str, answer: Callable[..., Any] = lambda *_: None) -> Callable[..., Any]:
    """Return a hook that notes its call, and how its arguments look."""

    def hook(*args: Any, **_kwargs: Any) -> Any:
        log.append(f"{text} {[type(arg).__name__ for arg in args]}")
        return answer(*args)

    return hook


HOOKS: dict[str, Register] = {
    "pre": lambda m, log: m.register_forward_pre_hook(noting(log, "pre")),
    "pre, first": lambda m, log: m.register_forward_pre_hook(noting(log, "pre"), prepend=True),
    "pre, with keywords": lambda m, log: m.register_forward_pre_hook(noting(log, "pre"), with_kwargs=True),
    "pre, new arguments": lambda m, log: m.register_forward_pre_hook(
        noting(log, "pre", lambda _, args: (args[0] * 2,))
    ),
    "post": lambda m, log: m.register_forward_hook(noting(log, "post")),
    "post, first": lambda m, log: m.register_forward_hook(noting(log, "post"), prepend=True),
    "post, with keywords": lambda m, log: m.register_forward_hook(noting(log, "post"), with_kwargs=True),
    "post, always": lambda m, log: m.register_forward_hook(noting(log, "post"), always_call=True),
    "post, new output": lambda m, log: m.register_forward_hook(noting(log, "post", lambda _m, _a, output: output * 2)),
    "full backward pre": lambda m, log: m.register_full_backward_pre_hook(noting(log, "backward pre")),
    "full backward": lambda m, log: m.register_full_backward_hook(noting(log, "backward")),
    "full backward, new gradient": lambda m, log: m.register_full_backward_hook(
        noting(log, "backward", lambda _m, grads, _out: tuple(g * 2 if g is not None else None for g in grads))
    ),
    "a parameter's": lambda m, log: m.weight.register_hook(noting(log, "parameter")),
    "a parameter's, after accumulation": lambda m, log: m.weight.register_post_accumulate_grad_hook(
        noting(log, "accumulated")
    ),
}


@pytest.fixture(autouse=True)
def no_global_hooks() -> Iterator[None]:
    """Prove that a test leaves no global hook of modules."""
    tables = [
        value for name, value in vars(torch_module).items() if name.endswith("_hooks") and isinstance(value, dict)
    ]
    assert not any(tables)
    yield
    left = [dict(table) for table in tables]
    for table in tables:
        table.clear()
    torch_module._global_is_full_backward_hook = None
    for name, value in vars(torch_module).items():  # torch 2.13 keeps flags of hooks that are removed
        if name.startswith("_global_forward_") and isinstance(value, dict):
            value.clear()
    assert not any(left)


def logged(model: nn.Module) -> tuple[Log, Tensor]:
    """Train a step of a model whose hooks write into its log; return what they wrote."""
    log: Log = model.log
    log.clear()
    output = train_step(model)
    return list(log), output


def with_log() -> nn.Sequential:
    """Return a model that has a log."""
    model = two_layers()
    object.__setattr__(model, "log", [])
    return model


def test_hooks_of_all_kinds_run_in_the_order_of_the_bare_model() -> None:
    """Two of each on each layer, one registered before the session and one during it."""

    def register(model: Any) -> None:
        for i in (0, 2):
            for register_kind in HOOKS.values():
                register_kind(model[i], model.log)

    def make() -> nn.Module:
        model = with_log()
        register(model)
        return model

    def work(model: nn.Module) -> Any:
        register(model)
        return logged(model)

    for frame in as_bare(make, work):
        assert forwards(frame) == backwards(frame) == ALL


class Failure(Exception):
    """Raised by a hook of the program."""


def fail(*_args: Any, **_kwargs: Any) -> Any:
    """Raise what the program raises."""
    raise Failure("of the program")


FAILING: dict[str, Callable[[Any], Any]] = {
    "pre": lambda m: m.register_forward_pre_hook(fail),
    "pre, with keywords": lambda m: m.register_forward_pre_hook(fail, with_kwargs=True),
    "post": lambda m: m.register_forward_hook(fail),
    "post, always": lambda m: m.register_forward_hook(fail, always_call=True),
    "full backward pre": lambda m: m.register_full_backward_pre_hook(fail),
    "full backward": lambda m: m.register_full_backward_hook(fail),
    "global pre": lambda _: torch_module.register_module_forward_pre_hook(fail),
    "global post": lambda _: torch_module.register_module_forward_hook(fail),
    "global backward": lambda _: torch_module.register_module_full_backward_hook(fail),
}


@pytest.mark.filterwarnings("ignore:module forward hook with ``always_call=True``")
@pytest.mark.parametrize("kind", FAILING)
def test_an_error_of_a_hook_reaches_the_program_and_the_next_step_is_recorded(kind: str) -> None:
    """The error leaves as it is, with the hooks that torch still runs."""

    def work(model: nn.Module, step: int) -> Any:
        model.log.clear()
        if step == 2:
            other = HOOKS["post, always"](model[2], model.log)
            handle = FAILING[kind](model[2])
            try:
                with pytest.raises(Failure) as error:
                    train_step(model)
                assert error.value.__cause__ is None
                assert error.value.__context__ is None
            finally:
                handle.remove()
                other.remove()
            model.zero_grad()
        return logged(model)

    first, second, third = as_bare(with_log, counting_steps(work), steps=3)
    assert forwards(first) == backwards(first) == forwards(third) == backwards(third) == ALL
    assert forwards(second)["0"] == (1 if kind == "global pre" else 2)
