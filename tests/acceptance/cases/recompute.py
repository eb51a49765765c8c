"""Programs with activation checkpointing in every form: the recomputation is a phase of its own."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

from benchmarks.models import import_package

from ..clock import CLOCK
from ..judge import Judge
from ..parts import (
    Block,
    Parts,
    Root,
    Sleep,
    batches,
    clocked,
    clocked_steps,
    in_backward,
    instrumented,
    judge_plain,
    recomputed,
    rest,
    sleep_op,
    update,
    weight,
)
from ..registry import Program, add, program

STEPS = 60
PHASES = ("forward", "recompute", "backward")


def judge_training(model: nn.Module, steps: int = STEPS) -> Judge:
    """Train with the default and compare steps, phases and sums."""
    return judge_plain(model, steps).steps().phases(*PHASES).closes()


Call = Callable[[Any, Tensor], Any]


class Net(Root):
    """A stem, a body that ``call`` runs (checkpointed or not), and a head."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.call = call
        self.stem, self.head = Sleep(1, 1, "stem"), Sleep(1, 1, "head")
        self.body = nn.Sequential(Sleep(3, 2, "first"), Sleep(2, 3, "second"))

    def run_body(self, x: Tensor) -> Any:
        with recomputed():
            return self.body(x)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.call(self, self.stem(x)))


@program("recompute", "checkpoint of a functools.partial with a keyword")
def checkpoint_partial() -> Judge:
    def scaled(x: Tensor, *, net: Net, scale: float) -> Any:
        return net.run_body(x) * scale

    return judge_training(outer(lambda net, x: checkpoint(partial(scaled, net=net, scale=0.5), x, use_reentrant=False)))


class Layers(Root):
    """A list of blocks of which each is checkpointed."""

    def __init__(self, call: Call, count: int = 3) -> None:
        super().__init__()
        self.call = call
        self.stem = Sleep(1, 1, "stem")
        self.layers = nn.ModuleList(Block((2, 2), (1, 1)) for _ in range(count))

    def forward(self, x: Tensor) -> Any:
        x = self.stem(x)
        for layer in self.layers:
            x = self.call(layer, x)
        return x


def outer(call: Call) -> Parts:
    """Return a model whose only child is a net, so that everything checkpointed lies inside one target."""
    return Parts(lambda model, x: model.tail(model.net(x)), net=Net(call), tail=Sleep(1, 1, "tail"))


def functional(reentrant: bool) -> Parts:
    """Return a model that checkpoints plain operations on its own parameters; no module is recomputed."""

    def call(net: Any, x: Tensor) -> Any:
        for one in net.weights:
            x = checkpoint(sleep_op, x if x.requires_grad else net.stem(x), one, 3.0, 2.0, use_reentrant=reentrant)
        return x

    return Parts(call, stem=Sleep(1, 1, "stem"), weights=nn.ParameterList(weight() for _ in range(2)))


def segments(reentrant: bool) -> Parts:
    """Return four layers that ``checkpoint_sequential`` runs in two segments."""

    def call(net: Any, x: Tensor) -> Any:
        return checkpoint_sequential(net.layers, 2, net.stem(x), use_reentrant=reentrant)  # type: ignore[no-untyped-call]

    layers = nn.Sequential(*(Sleep(2, 2, f"layer{i}") for i in range(4)))
    return Parts(call, stem=Sleep(1, 1, "stem"), layers=layers)


def checkpointed(part: Call, **more: Any) -> Parts:
    """Return a model that checkpoints a function of its parts after its stem."""

    def run(net: Any, x: Tensor) -> Any:
        with recomputed():
            return part(net, x)

    options = {"use_reentrant": False, **more.pop("options", {})}
    return Parts(lambda net, x: checkpoint(partial(run, net), net.stem(x), **options), stem=Sleep(1, 1), **more)


FORMS: Final[dict[str, tuple[str, Callable[[bool], nn.Module]]]] = {
    "checkpoint_lambda": (
        "checkpoint(lambda) inside a child of the model",
        lambda again: outer(lambda net, x: checkpoint(lambda y: net.body(y), x, use_reentrant=again)),
    ),
    "checkpoint_bound_method": (
        "checkpoint of a bound method",
        lambda again: outer(lambda net, x: checkpoint(net.run_body, x, use_reentrant=again)),
    ),
    "checkpoint_child": (
        "checkpoint of a direct child of the model, the form that hooks alone see",
        lambda again: Net(lambda net, x: checkpoint(net.body, x, use_reentrant=again)),
    ),
    "checkpoint_functional": (
        "plain operations checkpointed in the model's own forward; no module is recomputed",
        functional,
    ),
    "checkpoint_every_layer": (
        "every layer of a ModuleList checkpointed: three recomputations in one backward",
        lambda again: Layers(lambda layer, x: checkpoint(layer, x, use_reentrant=again)),
    ),
    "sequential_segments": ("checkpoint_sequential, four layers in two segments", segments),
}
"""Forms of checkpointing by name: a sentence, and a model that is checkpointed so, reentrant or not."""


def _run_form(name: str, reentrant: bool) -> Judge:
    return judge_training(FORMS[name][1](reentrant))


for _name, (_sentence, _) in FORMS.items():
    add(Program(_name, "recompute", _sentence, partial(_run_form, _name, False)))
    add(Program(f"{_name}_reentrant", "recompute", f"{_sentence}; reentrant", partial(_run_form, _name, True)))


def save_products() -> Any:
    """Return the contexts of selective checkpointing that keep the results of matrix products."""

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        keep = op is torch.ops.aten.mm.default
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)  # type: ignore[no-untyped-call]


@program("recompute", "selective checkpointing: a context_fn that keeps the matrix products")
def selective_checkpoint() -> Judge:
    return judge_training(
        checkpointed(
            lambda net, x: net.body(net.product(x)),
            product=nn.Linear(16, 16),
            body=Sleep(4, 2, "body"),
            options={"context_fn": save_products},
        )
    )


@program("recompute", "checkpoint_wrapper of torch.distributed around a child")
def wrapped_checkpoint() -> Judge:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model: Any = Net(lambda net, x: net.body(x))
    model.body = checkpoint_wrapper(model.body)
    return judge_training(model)


@program("recompute", "apply_activation_checkpointing on the layers of a list")
def applied_checkpoint() -> Judge:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

    model = Layers(lambda layer, x: layer(x))
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
    return judge_training(model)


@program("recompute", "early stop: the end of the checkpointed part does not run again")
def early_stop() -> Judge:
    def part(net: Any, x: Tensor) -> Any:
        x = net.body(x)
        rest(3)
        return x + 1

    return judge_training(checkpointed(part, body=Sleep(4, 3, "body")))


@program("recompute", "a checkpoint inside a checkpoint")
def nested_checkpoint() -> Judge:
    def part(net: Any, x: Tensor) -> Any:
        return checkpoint(net.inner, net.outer(x), use_reentrant=False)

    return judge_training(checkpointed(part, outer=Sleep(2, 1, "outer"), inner=Sleep(3, 2, "inner")))


class LayerWithFlag(nn.Module):
    """A layer as transformers 5 makes it: its forward, not its call, is recomputed."""

    gradient_checkpointing = True

    def __init_subclass__(cls) -> None:
        inner = cls.forward

        @wraps(inner)
        def forward(self: Any, *args: Any) -> Any:
            if self.gradient_checkpointing and self.training and not in_backward():
                return checkpoint(partial(inner, self), *args, use_reentrant=False)
            return inner(self, *args)

        cls.forward = forward  # type: ignore[assignment, method-assign]

    def forward(self, x: Tensor) -> Any:
        raise NotImplementedError


class DecoderLayer(LayerWithFlag):
    """A decoder layer of attention and MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attn, self.mlp = Sleep(2, 3, "self_attn"), Sleep(1, 1, "mlp")

    def forward(self, x: Tensor) -> Any:
        with recomputed():
            return self.mlp(self.self_attn(x)) + x


def causal_model() -> Parts:
    """Return a causal language model with layers that recompute their forward."""
    layers = [DecoderLayer() for _ in range(3)]
    decoder = nn.Sequential(OrderedDict(embed=Sleep(0.5, 0.5), layers=nn.Sequential(*layers)))
    return Parts(lambda net, x: net.lm_head(net.model(x)), model=decoder, lm_head=Sleep(1, 1, "lm_head"))


@program("recompute", "Llama-like: layers that recompute their forward instead of their call, as in transformers 5")
def llama_like() -> Judge:
    return judge_training(causal_model()).finds("recompute")


@program("recompute", "the same with the layers as explicit targets")
def llama_like_layers_as_targets() -> Judge:
    model, config = causal_model(), {"targets": [{"match": r"model\.layers\.\d+"}]}
    return judge_plain(model, STEPS, config).steps().phases(*PHASES).closes()


@program("recompute", "Llama of transformers with gradient_checkpointing_enable()", "transformers")
def llama_of_transformers() -> Judge:
    transformers = import_package("transformers")
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=4, num_attention_heads=4
    )
    model = transformers.LlamaForCausalLM(config)
    model.gradient_checkpointing_enable()
    model.train()
    kind = type(model.model.layers[0])
    kind.forward = _charged(kind.forward)  # transformers recomputes the function of the class
    model.forward = clocked(model.forward)
    session, optimizer = instrumented(model)
    for _ in clocked_steps(range(STEPS)):
        tokens = torch.randint(0, 256, (4, 64))
        update(model(input_ids=tokens, labels=tokens).loss, optimizer)
    return Judge(session).steps().phases(*PHASES, relative=0.1)


def _charged(forward: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Any:
        with recomputed():
            return forward(*args, **kwargs)

    return run


@program("recompute", "two losses with a backward each, every branch checkpointed")
def two_backwards() -> Judge:
    def call(net: Any, x: Tensor) -> tuple[Any, Any]:
        x = net.stem(x)
        return checkpoint(net.left, x, use_reentrant=False), checkpoint(net.right, x, use_reentrant=False)

    model = Parts(call, stem=Sleep(1, 1), left=Sleep(3, 2, "left"), right=Sleep(2, 2, "right"))
    session, optimizer = instrumented(model)
    for batch in clocked_steps(batches(STEPS)):
        left, right = model(batch)
        with CLOCK.phase("backward"):
            left.mean().backward(retain_graph=True)
        update(right.mean(), optimizer)
    return Judge(session).steps().phases(*PHASES).closes()


@program("recompute", "gradients by torch.autograd.grad through a checkpoint")
def gradients_by_function() -> Judge:
    model = outer(lambda net, x: checkpoint(net.run_body, x, use_reentrant=False))
    parameters = list(model.parameters())
    session, optimizer = instrumented(model)
    for batch in clocked_steps(batches(STEPS)):
        output = model(batch)
        with CLOCK.phase("backward"):
            for parameter, gradient in zip(parameters, torch.autograd.grad(output.mean(), parameters), strict=True):
                parameter.grad = gradient
        optimizer.step()
        optimizer.zero_grad()
    return Judge(session).steps().phases(*PHASES).closes()


class Failing(Root):
    """A checkpointed part that raises in each fifth recomputation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body, self.count = Sleep(1, 1), Sleep(3, 2, "body"), 0

    def part(self, x: Tensor) -> Any:
        with recomputed():
            y = self.body(x)
            if in_backward():
                self.count += 1
                if self.count % 5 == 0:
                    raise RuntimeError("out of memory")
            return y * y

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self.part, self.stem(x), use_reentrant=False)


@contextmanager
def retried(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Skip a batch whose backward raises, as programs do after a lack of memory."""
    try:
        yield
    except RuntimeError:
        optimizer.zero_grad()


@program("recompute", "an exception inside each fifth recomputation; the program skips that batch")
def exception_in_recompute() -> Judge:
    model = Failing()
    session, optimizer = instrumented(model)
    CLOCK.start()
    done = 0
    for batch in batches(STEPS):
        output = model(batch)
        with retried(optimizer):
            with CLOCK.phase("backward"):
                output.mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            done += 1
            CLOCK.step()
    judge = Judge(session).steps(done, within=2)
    return judge.phases(*PHASES, relative=0.1).closes()


@program("recompute", "a checkpoint with preserve_rng_state and determinism_check switched off")
def without_checks() -> Judge:
    return judge_training(
        outer(
            lambda net, x: checkpoint(
                net.run_body, x, use_reentrant=False, preserve_rng_state=False, determinism_check="none"
            )
        )
    )


@program("recompute", "no checkpointing: no recompute is invented")
def without_checkpointing() -> Judge:
    model = outer(lambda net, x: net.run_body(x))
    judge = judge_training(model)
    rows = [row.name for row in judge.summary.rows if row.phase == "recompute"]
    return judge.is_true("rows of recompute", not rows, ", ".join(rows) or "none", "none").silent("recompute")
