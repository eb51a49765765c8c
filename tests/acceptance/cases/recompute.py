"""Programs with activation checkpointing in every form: the recomputation is a phase of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

import autoprof
from benchmarks.hot_path.models import import_package

from ..clock import CLOCK
from ..judge import Judge
from ..parts import Block, Root, Sleep, batches, in_backward, recomputed, rest, sgd, sleep_op, train
from ..registry import program

STEPS = 60
PHASES = ("forward", "recompute", "backward")


def judge_training(model: nn.Module, steps: int = STEPS) -> Judge:
    """Train with the default and compare steps, phases and sums."""
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    train(model, optimizer, steps)
    session.close()
    return Judge(session).steps().phases(*PHASES).closes()


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


class Outer(Root):
    """A model whose only child is a net, so that everything checkpointed lies inside one target."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.net, self.tail = Net(call), Sleep(1, 1, "tail")

    def forward(self, x: Tensor) -> Any:
        return self.tail(self.net(x))


@program("recompute", "checkpoint(lambda) inside a child of the model, without reentry")
def checkpoint_lambda() -> Judge:
    return judge_training(Outer(lambda net, x: checkpoint(lambda y: net.body(y), x, use_reentrant=False)))


@program("recompute", "checkpoint(lambda) inside a child of the model, reentrant")
def checkpoint_lambda_reentrant() -> Judge:
    return judge_training(Outer(lambda net, x: checkpoint(lambda y: net.body(y), x, use_reentrant=True)))


@program("recompute", "checkpoint of a bound method")
def checkpoint_bound_method() -> Judge:
    return judge_training(Outer(lambda net, x: checkpoint(net.run_body, x, use_reentrant=False)))


@program("recompute", "checkpoint of a bound method, reentrant")
def checkpoint_bound_method_reentrant() -> Judge:
    return judge_training(Outer(lambda net, x: checkpoint(net.run_body, x, use_reentrant=True)))


@program("recompute", "checkpoint of a submodule two levels below the model")
def checkpoint_submodule() -> Judge:
    return judge_training(Outer(lambda net, x: checkpoint(net.body, x, use_reentrant=False)))


@program("recompute", "checkpoint of a direct child of the model, the form that hooks alone see")
def checkpoint_child() -> Judge:
    return judge_training(Net(lambda net, x: checkpoint(net.body, x, use_reentrant=False)))


@program("recompute", "checkpoint of a functools.partial with a keyword")
def checkpoint_partial() -> Judge:
    def scaled(x: Tensor, *, net: Net, scale: float) -> Any:
        return net.run_body(x) * scale

    return judge_training(Outer(lambda net, x: checkpoint(partial(scaled, net=net, scale=0.5), x, use_reentrant=False)))


class Functional(Root):
    """A model that checkpoints plain operations on its own parameters; no module runs in the recomputation."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.stem = Sleep(1, 1, "stem")
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(1)) for _ in range(2)])

    def forward(self, x: Tensor) -> Any:
        for weight in self.weights:
            x = checkpoint(
                sleep_op, x if x.requires_grad else self.stem(x), weight, 3.0, 2.0, use_reentrant=self.reentrant
            )
        return x


@program("recompute", "plain operations checkpointed in the model's own forward; no module is recomputed")
def checkpoint_functional() -> Judge:
    return judge_training(Functional(reentrant=False))


@program("recompute", "plain operations checkpointed in the model's own forward, reentrant")
def checkpoint_functional_reentrant() -> Judge:
    return judge_training(Functional(reentrant=True))


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


@program("recompute", "every layer of a ModuleList checkpointed: three recomputations in one backward")
def checkpoint_every_layer() -> Judge:
    return judge_training(Layers(lambda layer, x: checkpoint(layer, x, use_reentrant=False)))


@program("recompute", "every layer of a ModuleList checkpointed, reentrant")
def checkpoint_every_layer_reentrant() -> Judge:
    return judge_training(Layers(lambda layer, x: checkpoint(layer, x, use_reentrant=True)))


class Segments(Root):
    """Four layers run by ``checkpoint_sequential`` in two segments."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.stem = Sleep(1, 1, "stem")
        self.layers = nn.Sequential(*(Sleep(2, 2, f"layer{i}") for i in range(4)))

    def forward(self, x: Tensor) -> Any:
        return checkpoint_sequential(  # type: ignore[no-untyped-call]
            self.layers, 2, self.stem(x), use_reentrant=self.reentrant
        )


@program("recompute", "checkpoint_sequential, four layers in two segments")
def sequential_segments() -> Judge:
    return judge_training(Segments(reentrant=False))


@program("recompute", "checkpoint_sequential, reentrant")
def sequential_segments_reentrant() -> Judge:
    return judge_training(Segments(reentrant=True))


def save_products() -> Any:
    """Return the contexts of selective checkpointing that keep the results of matrix products."""

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        keep = op is torch.ops.aten.mm.default
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)  # type: ignore[no-untyped-call]


class Selective(Root):
    """A linear layer, whose product is kept, and a layer that is recomputed."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.product, self.body = Sleep(1, 1), nn.Linear(16, 16), Sleep(4, 2, "body")

    def part(self, x: Tensor) -> Any:
        with recomputed():
            return self.body(self.product(x))

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self.part, self.stem(x), use_reentrant=False, context_fn=save_products)


@program("recompute", "selective checkpointing: a context_fn that keeps the matrix products")
def selective_checkpoint() -> Judge:
    return judge_training(Selective())


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


class EarlyStop(Root):
    """A checkpointed part whose last stretch saves nothing, so that its recomputation ends before it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body = Sleep(1, 1), Sleep(4, 3, "body")

    def part(self, x: Tensor) -> Any:
        with recomputed():
            x = self.body(x)
            rest(3)
            return x + 1

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self.part, self.stem(x), use_reentrant=False)


@program("recompute", "early stop: the end of the checkpointed part does not run again")
def early_stop() -> Judge:
    return judge_training(EarlyStop())


class Nested(Root):
    """A checkpoint inside a checkpoint: the inner layer runs three times a step."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.outer, self.inner = Sleep(1, 1), Sleep(2, 1, "outer"), Sleep(3, 2, "inner")

    def part(self, x: Tensor) -> Any:
        with recomputed():
            return checkpoint(self.inner, self.outer(x), use_reentrant=False)

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self.part, self.stem(x), use_reentrant=False)


@program("recompute", "a checkpoint inside a checkpoint")
def nested_checkpoint() -> Judge:
    return judge_training(Nested())


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


class Decoder(nn.Module):
    """The inner model of a causal language model."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layers = Sleep(0.5, 0.5), nn.ModuleList(DecoderLayer() for _ in range(3))

    def forward(self, x: Tensor) -> Any:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return x


class CausalModel(Root):
    """A causal language model with layers that recompute their forward."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.lm_head = Decoder(), Sleep(1, 1, "lm_head")

    def forward(self, x: Tensor) -> Any:
        return self.lm_head(self.model(x))


@program("recompute", "Llama-like: layers that recompute their forward instead of their call, as in transformers 5")
def llama_like() -> Judge:
    return judge_training(CausalModel()).finds("recompute")


@program("recompute", "the same with the layers as explicit targets")
def llama_like_layers_as_targets() -> Judge:
    model = CausalModel()
    optimizer = sgd(model)
    session = autoprof.instrument(model, {"targets": [{"match": r"model\.layers\.\d+"}]}, optimizer=optimizer)
    train(model, optimizer, STEPS)
    session.close()
    return Judge(session).steps().phases(*PHASES).closes()


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
    model.forward = _clocked(model.forward)
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for _ in range(STEPS):
        tokens = torch.randint(0, 256, (4, 64))
        loss = model(input_ids=tokens, labels=tokens).loss
        with CLOCK.phase("backward"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        CLOCK.step()
    session.close()
    return Judge(session).steps().phases(*PHASES, relative=0.1)


def _charged(forward: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Any:
        with recomputed():
            return forward(*args, **kwargs)

    return run


def _clocked(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Charge a model's own forward: autoprof's work of a recorded step, after the model's last hook, is not in it."""

    @wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Any:
        with CLOCK.phase("forward"):
            return forward(*args, **kwargs)

    return run


class TwoLosses(Root):
    """Two checkpointed branches with a loss each."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.left, self.right = Sleep(1, 1), Sleep(3, 2, "left"), Sleep(2, 2, "right")

    def forward(self, x: Tensor) -> Any:
        x = self.stem(x)
        return checkpoint(self.left, x, use_reentrant=False), checkpoint(self.right, x, use_reentrant=False)


@program("recompute", "two losses with a backward each, every branch checkpointed")
def two_backwards() -> Judge:
    model = TwoLosses()
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for batch in batches(STEPS):
        left, right = model(batch)
        with CLOCK.phase("backward"):
            left.mean().backward(retain_graph=True)
            right.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        CLOCK.step()
    session.close()
    return Judge(session).steps().phases(*PHASES).closes()


@program("recompute", "gradients by torch.autograd.grad through a checkpoint")
def gradients_by_function() -> Judge:
    model = Outer(lambda net, x: checkpoint(net.run_body, x, use_reentrant=False))
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
    CLOCK.start()
    for batch in batches(STEPS):
        output = model(batch)
        with CLOCK.phase("backward"):
            parameters = list(model.parameters())
            for parameter, gradient in zip(parameters, torch.autograd.grad(output.mean(), parameters), strict=True):
                parameter.grad = gradient
        optimizer.step()
        optimizer.zero_grad()
        CLOCK.step()
    session.close()
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
    optimizer = sgd(model)
    session = autoprof.instrument(model, optimizer=optimizer)
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
    session.close()
    judge = Judge(session).steps(done, within=2)
    return judge.phases(*PHASES, relative=0.1).closes()


@program("recompute", "a checkpoint with preserve_rng_state and determinism_check switched off")
def without_checks() -> Judge:
    return judge_training(
        Outer(
            lambda net, x: checkpoint(
                net.run_body, x, use_reentrant=False, preserve_rng_state=False, determinism_check="none"
            )
        )
    )


@program("recompute", "no checkpointing: no recompute is invented")
def without_checkpointing() -> Judge:
    model = Outer(lambda net, x: net.run_body(x))
    judge = judge_training(model)
    rows = [row.name for row in judge.summary.rows if row.phase == "recompute"]
    return judge.is_true("rows of recompute", not rows, ", ".join(rows) or "none", "none").silent("recompute")
