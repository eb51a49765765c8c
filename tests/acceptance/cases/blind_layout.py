"""Models of every layout that people write, by an author who has not read how autoprof chooses and marks modules."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parametrize, prune
from torch.utils.data import DataLoader

import autoprof

from ..clock import CLOCK
from ..judge import Judge
from ..parts import (
    Block,
    Chain,
    Layer,
    Parts,
    Root,
    Sleep,
    Unlike,
    batches,
    clocked_steps,
    instrumented,
    judge_loop,
    judge_plain,
    recomputed,
    rest,
    sgd,
    sleep_op,
    train_step,
    two_layers,
    update,
)
from ..registry import program
from .blind_loops import together

STEPS: Final = 80
PHASES: Final = ("forward", "backward", "optimizer")
LATER: Final = r"modules? (that )?((was|were|are|is|has been|have been) )?(added|new|replaced|changed)|added after"
"""What a sentence about modules that are put in after ``instrument`` may say."""


def rows(judge: Judge, *names: str, phases: tuple[str, ...] = ("forward", "backward")) -> Judge:
    """Compare the rows of the modules with these names, which are their names in the program's clock too."""
    for name in names:
        for phase in phases:
            judge.row(rf"(.*\.)?{name}", phase, name)
    return judge


def named_or_said(judge: Judge, what: str, pattern: str, sentence: str) -> Judge:
    """Require the row of a module that was put in later, or a sentence that such modules are not recorded."""
    found = [row.name for row in judge.rows(pattern, "forward")]
    said = re.search(sentence, judge.all_text, re.IGNORECASE)
    reported = found[0] if found else said[0] if said else "neither a row nor a sentence"
    return judge.is_true(what, bool(found or said), reported, "a row or a sentence")


def trained(model: nn.Module, steps: int = STEPS) -> Judge:
    """Train plainly; compare steps, phases, and that the sums are right."""
    return judge_plain(model, steps).steps().phases(*PHASES).step_time().closes()


# wrapped, shared and changed modules


class Scaled(nn.Module):
    """A wrapper that computes around the model inside it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Any:
        return self.inner(x * 2) / 2


@program("targets", "the model is wrapped in two other modules after instrument, and the loop calls the outer one")
def wrapped_after_instrument() -> Judge:
    model = Parts(lambda net, x: net.head(net.trunk(x)), trunk=Sleep(3, 3, "trunk"), head=Unlike(1, 2, "head"))
    session, optimizer = instrumented(model)
    wrapper = Scaled(Scaled(model))
    for batch in clocked_steps(batches(STEPS)):
        train_step(wrapper, optimizer, batch)
    return rows(Judge(session).steps().phases(*PHASES).step_time().throughput(8, may_be_absent=True), "trunk", "head")


@program("targets", "tied weights: two layers share a parameter, and each has its own row")
def tied_weights() -> Judge:
    encoder, decoder = Sleep(1, 2, "encoder"), Unlike(3, 2, "decoder")
    decoder.weight = encoder.weight
    model = Parts(
        lambda net, x: net.decoder(net.middle(net.encoder(x))), encoder=encoder, middle=nn.Tanh(), decoder=decoder
    )
    return rows(trained(model), "encoder", "decoder")


@program("targets", "a parametrized weight that is computed anew in every forward: its time is in the forward")
def parametrized_weight() -> Judge:
    model = Parts(lambda net, x: net.head(net.trunk(x)), trunk=Sleep(1, 1, "trunk"), head=Unlike(1, 2, "head"))
    parametrize.register_parametrization(model.trunk, "weight", Sleep(3, 2, "norm"))
    return rows(trained(model), "head").row(r".*parametrizations\.weight\.0", "forward", "norm")


@program("targets", "a layer is pruned after 30 steps: its weight is computed by a hook from then on")
def pruned_in_training() -> Judge:
    model = two_layers()
    session, optimizer = instrumented(model)
    for number, batch in enumerate(clocked_steps(batches(STEPS)), 1):
        if number == 30:
            prune.l1_unstructured(model[0], "weight", amount=0)  # type: ignore[no-untyped-call]
        train_step(model, optimizer, batch)
    return Judge(session).steps().phases(*PHASES).step_time().closes()


@program("targets", "a submodule compiled by torch.jit.script between plain ones")
def scripted_submodule() -> Judge:
    script = torch.jit.script(nn.Sequential(nn.Linear(16, 16), nn.ReLU()))
    model = Parts(
        lambda net, x: net.last(net.script(net.first(x))),
        first=Sleep(2, 2, "first"),
        script=script,
        last=Unlike(1, 2, "last"),
    )
    return rows(trained(model), "first", "last")


class Forked(nn.Module):
    """A layer with a module of low rank beside it, put in its place after instrument."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base, self.low_rank = base.requires_grad_(False), Unlike(1, 1, "low_rank")

    def forward(self, x: Tensor) -> Any:
        return self.base(x) + self.low_rank(x)


@program("targets", "adapters are put around the layers after instrument and before the first step")
def adapters_after_instrument() -> Judge:
    model: Any = Parts(lambda net, x: net.head(net.trunk(x)), trunk=Sleep(2, 2, "base"), head=Unlike(1, 2, "head"))
    session = autoprof.instrument(model)
    model.trunk = Forked(model.trunk)
    optimizer = sgd(model)
    for batch in clocked_steps(batches(120)):
        train_step(model, optimizer, batch)
    judge = rows(Judge(session).steps().phases(*PHASES).step_time().closes(), "head")
    return named_or_said(judge, "the adapter", r"(.*\.)?low_rank", LATER)


@program("targets", "progressive growing: a layer is added to the model and its optimizer after 40 of 120 steps")
def model_grows() -> Judge:
    model: Any = Parts(
        lambda net, x: net.head(net.layers(x)), layers=nn.Sequential(Sleep(2, 2, "old")), head=Unlike(1, 1)
    )
    session, optimizer = instrumented(model)
    for number, batch in enumerate(clocked_steps(batches(120)), 1):
        if number == 40:
            model.layers.append(Unlike(4, 4, "new"))
            optimizer.add_param_group({"params": [model.layers[1].weight]})
        train_step(model, optimizer, batch)
    judge = Judge(session).steps().phases(*PHASES).step_time().closes()
    return named_or_said(judge, "the new layer", r"(.*\.)?layers\.(1|\*)", LATER)


@program("targets", "a layer's forward is replaced by a method of one's own after instrument")
def forward_replaced_after_instrument() -> Judge:
    model: Any = Parts(lambda net, x: net.head(net.trunk(x)), trunk=Sleep(2, 2, "trunk"), head=Unlike(1, 1, "head"))
    session, optimizer = instrumented(model)
    plain = model.head.forward

    def slower(self: Any, x: Tensor) -> Tensor:
        return sleep_op(plain(x), self.weight, 2, 1, "head")

    model.head.forward = MethodType(slower, model.head)
    for batch in clocked_steps(batches(STEPS)):
        train_step(model, optimizer, batch)
    return rows(Judge(session).steps().phases(*PHASES).step_time(), "trunk", "head")


class Prepared(Root):
    """A model whose class overrides ``__call__``, to shape its input and to unpack its output."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.head = Sleep(2, 2, "trunk"), Unlike(1, 2, "head")

    def __call__(self, *samples: Tensor) -> Tensor:
        result: Tensor = super().__call__({"x": torch.stack(samples)})["loss"]
        return result

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Any]:
        return {"loss": self.head(self.trunk(batch["x"])).mean()}


@program("targets", "a model whose class overrides __call__, called with each sample as an argument")
def call_overridden() -> Judge:
    model = Prepared()
    optimizer = sgd(model)
    judge = judge_loop(model, lambda batch: update(model(*batch), optimizer), STEPS, optimizer)
    return rows(judge.steps().phases(*PHASES).step_time(), "trunk", "head")


@program("targets", "layers in a plain Python list, which the model does not know as its children")
def layers_in_a_plain_list() -> Judge:
    hidden = [Sleep(1, 2, "hidden") for _ in range(3)]

    def call(net: Any, x: Tensor) -> Any:
        for layer in hidden:
            x = layer(x)
        return net.head(x)

    model: Any = Parts(call, head=Sleep(1, 1, "head"))
    optimizer = torch.optim.SGD([*model.parameters(), *(layer.weight for layer in hidden)], lr=1e-4)
    judge = judge_loop(model, lambda batch: train_step(model, optimizer, batch), STEPS, optimizer)
    return rows(judge.steps().phases("forward", "backward").step_time(), "head").silent("unattributed")


@program("targets", "names with spaces, slashes, umlauts and of methods as keys of a ModuleDict")
def odd_names() -> Judge:
    names = {"conv 3x3/s2": (1, 1), "größe": (3, 2), "forward_": (1, 2), "0": (1, 1)}
    layers = nn.ModuleDict({name: Sleep(*times, name) for name, times in names.items()})

    def call(net: Any, x: Tensor) -> Any:
        for layer in net.layers.values():
            x = layer(x)
        return x

    return trained(Parts(call, layers=layers), 120).named(r"(.*\.)?(größe|\*)")


# dynamic models


@program("targets", "early exits: a batch runs through one to six layers of a ModuleList, each with its own head")
def early_exits() -> Judge:
    draw = random.Random(3)

    def call(net: Any, x: Tensor) -> Any:
        depth = draw.randint(1, 6)
        for layer in net.layers[:depth]:
            x = layer(x)
        return net.heads[depth - 1](x)

    layers = nn.ModuleList(Sleep(1, 1, "layer") for _ in range(6))
    model = Parts(call, layers=layers, heads=nn.ModuleList(Unlike(1, 1, "head") for _ in range(6)))
    return trained(model, 120).silent("jitter", "hot-module", "unattributed")


@program("targets", "stochastic depth: each of eight equal blocks is left out in a third of the steps")
def stochastic_depth() -> Judge:
    draw = random.Random(4)

    def call(net: Any, x: Tensor) -> Any:
        x = net.stem(x)
        for block in net.blocks:
            if draw.random() > 0.33:
                x = x + block(x)
        return x

    model = Parts(call, stem=Unlike(1, 1, "stem"), blocks=nn.ModuleList(Sleep(1, 1, "block") for _ in range(8)))
    return rows(trained(model, 120), "stem").row(r"(.*\.)?blocks\.(\*|\d+)", "forward", "block").silent("hot-module")


class Experts(nn.Module):
    """A mixture of experts that sends each sample to one of four, in a Python loop."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self.draw = draw
        self.experts = nn.ModuleList(Sleep(0.7, 0.7, "expert") for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        choice = torch.tensor([self.draw.randrange(4) for _ in range(len(x))])
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            (found,) = torch.where(choice == number)
            if len(found):
                result = result.index_add(0, found, expert(x[found]))
        return result


@program("targets", "three layers of experts, to which the samples of a batch of four are sent one by one")
def experts_by_sample() -> Judge:
    draw = random.Random(5)
    model = Chain(Experts(draw), Experts(draw), Experts(draw))
    judge = (
        judge_plain(model, batches(120, 4))
        .steps()
        .phases(*PHASES)
        .step_time()
        .closes()
        .throughput(4, may_be_absent=True)
    )
    return judge.silent("hot-module", "jitter", "unattributed")


class Tree(Root):
    """A recursive model: it calls itself for the branches of a tree."""

    def __init__(self) -> None:
        super().__init__()
        self.leaf, self.join = Sleep(1, 1, "leaf"), Unlike(1, 1, "join")

    def forward(self, x: Tensor, depth: int) -> Any:
        if depth == 0:
            return self.leaf(x)
        left, right = x.chunk(2)
        return self.join(torch.cat([self(left, depth - 1), self(right, 0)]))


@program("targets", "a tree network that calls itself for its branches: nothing is counted twice")
def recursive_model() -> Judge:
    model, draw = Tree(), random.Random(6)
    optimizer = sgd(model)
    judge = judge_loop(model, lambda batch: update(model(batch, draw.randint(1, 3)).mean(), optimizer), 100, optimizer)
    return rows(judge.steps().phases(*PHASES).step_time().closes(), "leaf", "join")


@program("targets", "a hypernetwork makes the weights of a second network, which functional_call runs")
def hypernetwork() -> Judge:
    def call(net: Any, x: Tensor) -> Any:
        weight = net.maker(x).mean().reshape(1)
        return functional_call(net.main, {"weight": weight}, (x,))

    return rows(trained(Parts(call, maker=Sleep(2, 2, "maker"), main=Unlike(2, 3, "main"))), "maker", "main")


class Equilibrium(Root):
    """A deep equilibrium: iterations without gradients, one with, and a solver in a hook of the backward."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = Sleep(1, 1, "cell")

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            z = x
            for _ in range(4):
                z = torch.tanh(self.cell(z))
        z = torch.tanh(self.cell(z.requires_grad_()))
        inner = z.detach().requires_grad_()
        again = torch.tanh(inner * 0.5)

        def solve(gradient: Tensor) -> Tensor:
            for _ in range(3):
                rest(1)
                gradient = torch.autograd.grad(again, inner, gradient, retain_graph=True)[0] + gradient
            return gradient

        z.register_hook(solve)
        return z


@program("targets", "a deep equilibrium: four of five calls run without gradients, and a hook solves in the backward")
def deep_equilibrium() -> Judge:
    return trained(Equilibrium()).row(r"(.*\.)?cell", "forward", "cell").excludes_nothing().silent("recompute")


@program("targets", "interatomic forces: the forward itself differentiates the energy, with create_graph")
def forces_of_a_potential() -> Judge:
    def call(net: Any, x: Tensor) -> Any:
        x = x.clone().requires_grad_()
        energy = net.head(net.trunk(x)).square().sum()
        with CLOCK.phase("backward"):
            (force,) = torch.autograd.grad(energy, x, create_graph=True)
        return energy + force.square().sum()

    model = Parts(call, trunk=Sleep(2, 2, "trunk"), head=Unlike(1, 1, "head"))
    optimizer = sgd(model)
    judge = judge_loop(model, lambda batch: update(model(batch), optimizer), STEPS, optimizer).steps().step_time()
    together(judge, "forward", "backward").row(r"(.*\.)?trunk", "forward", "trunk").silent("recompute")
    return judge.throughput(8, may_be_absent=True).excludes_nothing()


# modules that run in the backward pass or in hooks


class _Coupling(torch.autograd.Function):
    """Run a module without keeping its graph; the backward computes it again from the output."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, block: nn.Module, *weights: Tensor) -> Tensor:
        ctx.block, ctx.weights = block, weights
        with torch.no_grad():
            result: Tensor = block(x)
        ctx.save_for_backward(x)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            result = ctx.block(x)
        found = torch.autograd.grad(result, (x, *ctx.weights), gradients[0])
        return found[0], None, *found[1:]


def _call_coupled(net: Any, x: Tensor) -> Any:
    for block in net.blocks:
        x = _Coupling.apply(x, block, *block.parameters())  # type: ignore[no-untyped-call]
    return net.head(x)


@program("recompute", "reversible blocks: an autograd function runs each block again in its backward")
def reversible_blocks() -> Judge:
    blocks = nn.ModuleList(Sleep(2, 2, "block") for _ in range(3))
    model = Parts(_call_coupled, blocks=blocks, head=Unlike(1, 1, "head"))
    judge = trained(model).phases("recompute").finds("recompute")
    return judge.row(r"(.*\.)?head", "backward", "head").excludes_nothing()


class _Straight(torch.autograd.Function):
    """Pass the input on; the backward asks another module for the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, critic: nn.Module) -> Tensor:
        ctx.critic = critic
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.critic(gradients[0]), None


@program("recompute", "synthetic gradients: a module that ran in no forward is called in the backward")
def module_of_the_backward() -> Judge:
    def call(net: Any, x: Tensor) -> Any:
        return net.head(_Straight.apply(net.trunk(x), net.critic))  # type: ignore[no-untyped-call]

    critic = Unlike(3, 0, "critic").requires_grad_(False)
    model = Parts(call, trunk=Sleep(2, 3, "trunk"), critic=critic, head=Sleep(1, 1, "head"))
    judge = judge_plain(model, STEPS).steps().phases("forward", "optimizer").step_time().closes()
    return together(judge, "backward", "recompute")


@program("targets", "deep supervision: a forward hook of the user's calls an auxiliary head on a layer's output")
def auxiliary_head_in_a_hook() -> Judge:
    model: Any = Parts(
        lambda net, x: net.last(net.first(x)),
        first=Sleep(2, 2, "first"),
        last=Sleep(1, 2, "last"),
        auxiliary=Unlike(2, 1, "auxiliary"),
    )
    kept: list[Tensor] = []

    def judge_features(layer: nn.Module, inputs: Any, output: Tensor) -> None:
        kept.append(model.auxiliary(output).mean())

    model.first.register_forward_hook(judge_features)
    optimizer = sgd(model)
    judge = judge_loop(model, lambda x: update(model(x).mean() + kept.pop(), optimizer), STEPS, optimizer)
    judge.steps().phases(*PHASES).step_time().closes()
    return rows(judge, "auxiliary", "last")


@program("targets", "a tensor hook calls a module of the model in the backward, to correct the gradient")
def module_in_a_tensor_hook() -> Judge:
    def call(net: Any, x: Tensor) -> Any:
        features = net.trunk(x)
        features.register_hook(lambda gradient: net.corrector(gradient).detach())
        return net.head(features)

    model = Parts(call, trunk=Sleep(2, 3, "trunk"), corrector=Unlike(2, 0, "corrector"), head=Sleep(1, 1, "head"))
    judge = judge_plain(model, STEPS).steps().phases("forward", "optimizer").step_time().closes()
    return together(judge, "backward", "recompute").row(r"(.*\.)?trunk", "forward", "trunk")


# inputs and outputs


@dataclass
class Output:
    """The output of a model, as a dataclass."""

    hidden: Tensor
    extra: list[Tensor]


class Encoder(nn.Module):
    """A module that takes and returns dataclasses."""

    def __init__(self, forward_ms: float, backward_ms: float, name: str) -> None:
        super().__init__()
        self.layer = Sleep(forward_ms, backward_ms, name)

    def forward(self, given: Output) -> Output:
        return Output(self.layer(given.hidden), [*given.extra, given.hidden])


@program("targets", "modules that take and return dataclasses: their backward is found too")
def dataclasses_between_modules() -> Judge:
    model = Parts(
        lambda net, x: net.deep(net.shallow(Output(x, []))), shallow=Encoder(2, 3, "a"), deep=Encoder(1, 2, "b")
    )
    optimizer = sgd(model)
    judge = judge_loop(model, lambda batch: update(model(batch).hidden.mean(), optimizer), 100, optimizer)
    judge.steps().phases(*PHASES).step_time().closes()
    for name, clock in (("shallow", "a"), ("deep", "b")):
        for phase in ("forward", "backward"):
            judge.row(rf"(.*\.)?{name}", phase, clock)
    return judge


class Pyramid(nn.Module):
    """A model whose forward is a generator of the features of each level."""

    def __init__(self) -> None:
        super().__init__()
        self.levels = nn.ModuleList(Layer(1, 2, "level") for _ in range(3))

    def forward(self, x: Tensor) -> Iterator[Tensor]:
        for level in self.levels:
            x = level(x)
            yield x


@program("targets", "a model whose forward is a generator, which the loop goes through")
def generator_as_output() -> Judge:
    model = Pyramid()
    optimizer = sgd(model)
    judge = judge_loop(model, lambda x: update(sum(one.mean() for one in model(x)), optimizer), 100, optimizer)  # type: ignore[arg-type]
    judge.steps().phases(*PHASES).step_time().closes()
    return judge.row(r"(.*\.)?levels\.(\*|\d+)", "forward", "level")


class Fusion(nn.Module):
    """A module whose arguments have to be named."""

    def __init__(self, forward_ms: float, backward_ms: float, name: str) -> None:
        super().__init__()
        self.layer = Sleep(forward_ms, backward_ms, name)

    def forward(self, *, pixels: Tensor, scale: float = 1.0, mask: Tensor | None = None) -> dict[str, Any]:
        return {"pixels": self.layer(pixels) * scale, "mask": mask}


@program("targets", "models and modules that are called by keywords only, with results in dictionaries")
def keywords_only() -> Judge:
    def call(net: Any, *, pixels: Tensor, mask: Tensor) -> Any:
        return net.last(scale=0.5, **net.first(mask=mask, pixels=pixels))["pixels"]

    model = Parts(call, first=Fusion(2, 2, "a"), last=Fusion(1, 3, "b"))
    optimizer = sgd(model)
    step: Callable[[Tensor], None] = lambda x: update(model(mask=x > 0, pixels=x).mean(), optimizer)  # noqa: E731
    judge = (
        judge_loop(model, step, 100, optimizer).steps().phases(*PHASES).step_time().throughput(8, may_be_absent=True)
    )
    return judge.row(r"(.*\.)?last", "backward", "b").row(r"(.*\.)?first", "forward", "a")


class Sample(NamedTuple):
    """A sample of a data set."""

    image: Tensor
    label: int
    weight: float


@program("throughput", "batches as named tuples of image, label and weight from a loader, which the model takes whole")
def named_tuples() -> Judge:
    samples = [Sample(torch.randn(16), number % 3, 1.0) for number in range(12 * STEPS)]
    model = Parts(lambda net, batch: net.head(batch.image) * batch.weight[:, None], head=Sleep(3, 4, "head"))
    optimizer = sgd(model)
    data = DataLoader(samples, batch_size=12)  # type: ignore[arg-type]
    judge = judge_loop(model, lambda batch: train_step(model, optimizer, batch), data, optimizer)
    return judge.steps().phases(*PHASES).step_time().throughput(12, may_be_absent=True)


@program("throughput", "detection: a list of images of several sizes and a list of dictionaries of targets")
def lists_of_images() -> Judge:
    def call(net: Any, images: list[Tensor], targets: list[dict[str, Tensor]]) -> Any:
        padded = torch.stack([nn.functional.pad(image.flatten(), (0, 1200 - image.numel())) for image in images])
        return {"loss": net.body(padded).mean(), "boxes": sum(one["boxes"].sum() for one in targets)}

    model, draw = Parts(call, body=Sleep(3, 4, "body")), random.Random(7)
    optimizer = sgd(model)

    def make() -> Iterator[Any]:
        for _ in range(STEPS):
            images = [torch.randn(3, draw.randint(10, 20), draw.randint(10, 20)) for _ in range(6)]
            yield images, [{"boxes": torch.zeros(draw.randint(1, 9), 4)} for _ in images]

    judge = judge_loop(model, lambda batch: update(model(*batch)["loss"], optimizer), make(), optimizer)
    return judge.steps().phases(*PHASES).step_time().throughput(6, may_be_absent=True)


# copies and threads


@program("targets", "two threads call the model at once, each with half of the batch: steps and sums stay right")
def model_in_two_threads() -> Judge:
    model = nn.Sequential(Sleep(3, 1, "first"), Unlike(1, 1, "second"))
    session, optimizer = instrumented(model)
    with ThreadPoolExecutor(2) as pool:
        for batch in clocked_steps(batches(STEPS)):
            outputs = list(pool.map(model, batch.chunk(2)))
            update(torch.cat(outputs).mean(), optimizer)
    judge = Judge(session).steps().step_time().closes().excludes_nothing()
    return judge.says("other threads", r"other threads call the model")


def _replica(model: nn.Module) -> nn.Module:
    """Return a replica with the same parameters, as ``nn.DataParallel`` makes one."""
    replica: Any = model._replicate_for_data_parallel()  # type: ignore[operator]
    replica._parameters = dict(model._parameters)
    for name, child in model.named_children():
        replica._modules[name] = _replica(child)
    return replica  # type: ignore[no-any-return]


@program("targets", "replicas of the model are made in every step, as DataParallel does, and called in turn")
def replicas_in_each_step() -> Judge:
    model = two_layers()
    session, optimizer = instrumented(model)
    for batch in clocked_steps(batches(STEPS)):
        outputs = [_replica(model)(part) for part in batch.chunk(2)]
        update(torch.cat(outputs).mean(), optimizer)
    return Judge(session).steps().phases("optimizer").step_time().closes().excludes_nothing()


@program("targets", "lazy modules, whose parameters are made by a dry run between instrument and the optimizer")
def lazy_modules() -> Judge:
    model = Parts(
        lambda net, x: net.last(net.lazy(net.first(x))),
        first=Sleep(2, 2, "first"),
        lazy=nn.LazyLinear(16),
        last=Unlike(1, 2, "last"),
    )
    session = autoprof.instrument(model)
    with torch.no_grad():
        model(torch.randn(2, 16))
    optimizer = sgd(model)
    for batch in clocked_steps(batches(STEPS)):
        train_step(model, optimizer, batch)
    return rows(Judge(session).steps().phases(*PHASES).step_time().throughput(8, may_be_absent=True), "first", "last")


@program("healthy", "a block that is frozen and thawed by turns every ten steps: no jitter, and no one is accused")
def blocks_frozen_by_turns() -> Judge:
    def call(net: Any, x: Tensor) -> Any:
        for block in net.blocks:
            x = block(x)
        return x

    model: Any = Parts(call, blocks=nn.ModuleList(Block((1, 1), (1, 1)) for _ in range(3)))
    session, optimizer = instrumented(model)
    turn = itertools.cycle(model.blocks)
    for number, batch in enumerate(clocked_steps(batches(120))):
        if number % 10 == 0:
            model.requires_grad_(True)
            next(turn).requires_grad_(False)
        train_step(model, optimizer, batch)
    judge = Judge(session).steps().phases("forward", "backward").step_time().closes()
    return judge.silent("jitter", "hot-module", "unattributed", "backward-ratio", "data-wait")


@program("healthy", "six sibling experts of equal length, of which each step calls another one: none is hot")
def experts_in_a_round() -> Judge:
    turn = itertools.cycle(range(6))
    experts = nn.ModuleList(nn.Sequential(Sleep(3, 3, "expert"), nn.Tanh()) for _ in range(6))
    model = Parts(lambda net, x: net.experts[next(turn)](net.stem(x)), stem=Unlike(2, 2, "stem"), experts=experts)
    judge = rows(trained(model, 120), "stem").silent("hot-module", "jitter", "unattributed", "backward-ratio")
    return judge.row(r"(.*\.)?experts\.(\*|\d+)", "forward", "expert")


def _mix(net: Any, x: Tensor, sleep_ms: float) -> Any:
    x = net.first(x)
    with recomputed():
        rest(sleep_ms)
    return net.second(x)


@program("findings", "a wrapper's own forward waits 9 ms between two short layers: the wrapper or its line is named")
def wait_inside_a_wrapper() -> Judge:
    inner = Parts(partial(_mix, sleep_ms=9), first=Sleep(1, 1, "first"), second=Unlike(1, 1, "second"))
    judge = trained(Scaled(Scaled(inner)), 120)
    return judge.names("the wrapper or the line", r"_mix|blind_layout|inner|Parts", "hot-module", "unattributed")
