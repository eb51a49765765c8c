"""Models of many shapes under the default: phases are whole, blocks are grouped, and the hot part is named."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

import autoprof

from ..clock import CLOCK
from ..judge import Judge
from ..parts import (
    Block,
    Chain,
    Parts,
    Root,
    Sleep,
    Unlike,
    batches,
    clocked,
    clocked_steps,
    instrumented,
    rest,
    sgd,
    sleep_op,
    train,
    weight,
)
from ..registry import program

STEPS = 120
PHASES = ("forward", "backward")


def judge_model(model: Any, steps: int = STEPS, config: Any = None) -> Judge:
    """Train with the default (or a configuration) and compare steps, phases and sums."""
    optimizer = sgd(model)
    session = autoprof.instrument(model, config, optimizer=optimizer)
    train(model, optimizer, steps)
    return Judge(session).steps().phases(*PHASES).closes()


@program("targets", "operations of the model's own forward beside its child: both phases are whole")
def operations_beside_a_child() -> Judge:
    model = Parts(lambda net, x: sleep_op(net.child(x), net.weight, 5, 6), child=Sleep(2, 2, "child"), weight=weight())
    return judge_model(model).row("child", "forward").row("child", "backward")


@program("targets", "the backward of an operation beside a module is not charged to the module")
def operation_beside_a_module() -> Judge:
    model = Parts(
        lambda net, x: sleep_op(x, net.weight, 4, 8) + net.child(x), child=Sleep(2, 3, "child"), weight=weight()
    )
    return judge_model(model).row("child", "forward").row("child", "backward")


@program("targets", "a child that is never called, only the modules inside it")
def children_never_called() -> Judge:
    inner = nn.Module()
    inner.first, inner.second = Sleep(3, 3, "first"), Sleep(2, 2, "second")
    model = Parts(lambda net, x: net.head(net.inner.second(net.inner.first(x))), inner=inner, head=Sleep(1, 1, "head"))
    return judge_model(model).named(r"inner(\.first)?").row("head", "forward")


class Transformer(Root):
    """A stem, a list of equal blocks and a head."""

    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.stem, self.layers, self.head = Sleep(0.5, 0.5), nn.ModuleList(blocks), Sleep(0.5, 0.5, "head")

    def forward(self, x: Tensor) -> Any:
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@program("targets", "a ModuleList of four equal blocks: grouped, and its attention is named the longest")
def repeated_blocks() -> Judge:
    judge = judge_model(Transformer([Block() for _ in range(4)]), 160)
    judge.named(r"layers\.\*\.attention").hottest(r"layers\.\*\.attention")
    return judge.row(r"layers\.\*\.attention", "forward", "attention")


class OddBlock(nn.Module):
    """A block unlike its siblings."""

    def __init__(self) -> None:
        super().__init__()
        self.mixer, self.gate = Sleep(7, 6, "mixer"), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Any:
        return self.gate(self.mixer(x))


@program("targets", "a ModuleList of six equal blocks in three levels below the model")
def repeated_blocks_below() -> Judge:
    blocks = nn.Sequential(Transformer([Block((1, 1), (0.4, 0.4)) for _ in range(6)]))
    model = Parts(lambda net, x: net.lm_head(net.model(x)), model=blocks, lm_head=Sleep(0.5, 0.5, "lm_head"))
    judge = judge_model(model, 160)
    return judge.named(r".*layers\.\*\.attention").hottest(r".*layers\.\*\.attention")


@program("targets", "one odd block among equal ones stands alone and is named the longest")
def odd_block() -> Judge:
    judge = judge_model(
        Transformer([Block((1, 1), (1, 1)), OddBlock(), *(Block((1, 1), (1, 1)) for _ in range(2))]), 160
    )
    return judge.named(r"layers\.1(\..*)?").hottest(r"layers\.1\.mixer").named(r"layers\.\*(\..*)?")


class Deep(nn.Module):
    """A module inside a module, ``depth`` times; the leaf is long."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.inner: nn.Module = Deep(depth - 1) if depth else Sleep(6, 6, "leaf")
        self.side = Sleep(0.3, 0.3, "side")

    def forward(self, x: Tensor) -> Any:
        return self.side(self.inner(x))


@program("targets", "a hot leaf six levels deep is named within 200 steps")
def hot_leaf_deep_inside() -> Judge:
    judge = judge_model(Chain(Deep(5), Sleep(1, 1, "tail")), 200)
    return judge.hottest(r"0(\.inner){6}").row(r"0(\.inner){6}", "forward", "leaf")


@program("targets", "one slow module of another class among twenty fast ones is named")
def hot_one_of_twenty() -> Judge:
    model = Chain(*(Sleep(0.1, 0.1) if i != 13 else Unlike(9, 9, "hot") for i in range(20)))
    return judge_model(model).hottest("13").row("13", "forward", "hot")


class Hidden(nn.Module):
    """A layer whose length no setting or parameter shows, as where only one block's input is slow."""

    def __init__(self, ms: float, name: str) -> None:
        super().__init__()
        self.length = {name: ms}
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Any:
        ((name, ms),) = self.length.items()
        return sleep_op(x, self.weight, ms, ms, name)


class HiddenBlock(nn.Module):
    """A block of two such layers, the first of which may be long."""

    def __init__(self, ms: float, name: str) -> None:
        super().__init__()
        self.attention, self.mlp = Hidden(ms, name), Hidden(0.1, "mlp")

    def forward(self, x: Tensor) -> Any:
        return self.mlp(self.attention(x))


@program("targets", "one slow block among twenty of the same structure is named, and so is its slow part")
def hot_one_of_twenty_alike() -> Judge:
    blocks = nn.Sequential(*(HiddenBlock(*((6, "hot") if i == 13 else (0.1, "usual"))) for i in range(20)))
    judge = judge_model(Chain(blocks, Sleep(0.5, 0.5, "head")), 160)
    return judge.hottest(r"0\.\*\.attention").finds("hot-module", r"0\.13\.attention")


@program("targets", "two hot leaves at different depths are both named")
def two_hot_leaves() -> Judge:
    left = nn.Sequential(nn.Sequential(Unlike(3, 3, "left"), Sleep(0.3, 0.3)), Sleep(0.3, 0.3))
    model = Parts(lambda net, x: net.left(x) + net.right(x), left=left, right=Sleep(3, 3, "right"))
    return judge_model(model, 160).row(r"left\.0\.0", "forward", "left").row("right", "forward", "right")


class Forwarding(nn.Module):
    """A wrapper that only forwards."""

    def __init__(self, wrapped: nn.Module) -> None:
        super().__init__()
        self.wrapped = wrapped

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.wrapped(*args, **kwargs)


@program("targets", "three wrappers around the model that only forward: the parts of the model are named")
def forwarding_wrappers() -> Judge:
    inner = Transformer([Block() for _ in range(3)])
    return judge_model(Forwarding(Forwarding(Forwarding(inner))), 160).hottest(r".*layers\.\*\.attention")


@program("targets", "DataParallel without a device")
def data_parallel() -> Judge:
    judge = judge_model(nn.DataParallel(Transformer([Block() for _ in range(3)])), 160)
    return judge.hottest(r"layers\.\*\.attention")


@program("targets", "DistributedDataParallel with one process over gloo")
def distributed_data_parallel() -> Judge:
    distributed: Any = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    model = nn.parallel.DistributedDataParallel(Transformer([Block() for _ in range(3)]))
    session, optimizer = instrumented(model)
    train(model, optimizer, 160)
    distributed.destroy_process_group()
    return Judge(session).steps().phases("forward").closes().hottest(r"layers\.\*\.attention")


class Uncompiled(Sleep):
    """A layer that the compiler leaves out of its graphs."""

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


@program("targets", "a compiled submodule beside a plain one")
def compiled_submodule() -> Judge:
    inner = torch.compile(nn.Sequential(nn.Linear(16, 16), Uncompiled(4, 4, "inside")), backend="eager")
    model = Parts(lambda net, x: net.plain(net.compiled(x)), compiled=inner, plain=Sleep(2, 2, "plain"))
    return judge_model(model).named(r"compiled(\..*)?").row("plain", "forward").row("plain", "backward")


@program("targets", "a model compiled as a whole, with a part that cannot be compiled")
def compiled_model() -> Judge:
    class Inner(nn.Module):
        """Two layers and their product."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Uncompiled(4, 4, "first"), nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Any:
            return self.second(self.first(x))

    model: Any = torch.compile(Inner(), backend="eager")
    session, optimizer = instrumented(model)
    for batch in clocked_steps(batches(STEPS)):
        output = model(batch)
        with CLOCK.phase("backward"):
            output.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return Judge(session).steps().phases("backward").step_time().closes()


class Adapted(nn.Module):
    """A layer with a low-rank adapter beside it, as PEFT makes it."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(16, 2, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(2, 16, bias=False)})

    def forward(self, x: Tensor) -> Any:
        return self.base_layer(x) + self.lora_B["default"](self.lora_A["default"](x))


class LoraModel(nn.Module):
    """The inner wrapper of PEFT."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.model.forward(*args, **kwargs)


class PeftModel(nn.Module):
    """The outer wrapper of PEFT."""

    def __init__(self, base_model: nn.Module) -> None:
        super().__init__()
        self.base_model = base_model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.base_model(*args, **kwargs)


@program("targets", "PEFT-like: frozen layers with adapters, inside base_model.model")
def adapters() -> Judge:
    inner = Transformer([Block() for _ in range(3)])
    for layer in inner.layers:
        block: Any = layer
        block.attention = Adapted(block.attention)
    return judge_model(PeftModel(LoraModel(inner)), 160).hottest(r".*layers\.\*\.attention(\.base_layer)?")


@program("targets", "a layer in two places: one name with both calls")
def shared_layer() -> Judge:
    layer = Sleep(2, 2, "shared")
    model = Parts(
        lambda net, x: net.second(net.other(net.first(x))), first=layer, second=layer, other=Sleep(1, 1, "other")
    )
    return judge_model(model).row("first", "forward", "shared").row("first", "backward", "shared")


class EncoderDecoder(Root):
    """Two stacks of equal blocks, as in T5."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = (nn.ModuleList(Block((1, 1), (1, 1)) for _ in range(2)) for _ in range(2))
        self.cross = Sleep(0.5, 0.5)

    def forward(self, x: Tensor) -> Any:
        for block in self.encoder:
            x = block(x)
        x = self.cross(x)
        for block in self.decoder:
            x = block(x)
        return x


@program("targets", "two stacks of equal blocks: each is a group of its own")
def two_stacks() -> Judge:
    return judge_model(EncoderDecoder(), 160).named(r"encoder\.\*(\..*)?").named(r"decoder\.\*(\..*)?")


@program("targets", "explicit rules name the modules that they match, and the phases stay whole")
def explicit_rules() -> Judge:
    config = {"targets": [{"match": r"layers\.(\d+)\.attention", "name": "Attention"}, {"match": "head"}]}
    judge = judge_model(Transformer([Block() for _ in range(3)]), config=config)
    return judge.row("Attention", "forward", "attention").row("Attention", "backward", "attention")


@program("targets", "targets.yaml of a run's folder gives the same names in a second run")
def targets_reproduced() -> Judge:
    first = judge_model(Transformer([Block() for _ in range(3)]), 160)
    rules = first.folder / "targets.yaml" if first.folder else None
    if rules is None or not rules.exists():
        return first.is_true("targets.yaml in the run's folder", False)
    second = judge_model(Transformer([Block() for _ in range(3)]), 60, str(rules))
    names = [{row.name for row in one.summary.rows if row.phase == "forward"} for one in (first, second)]
    missing = names[0] ^ names[1]
    return second.is_true("the same names", not missing, ", ".join(sorted(missing)) or "the same", "the same")


@program("targets", "autoprof.suggest_targets(model) before any run is a configuration that works")
def suggested_targets() -> Judge:
    model = Transformer([Block() for _ in range(3)])
    suggest: Any = getattr(autoprof, "suggest_targets", None)
    if suggest is None:
        return judge_model(model, 60).is_true("autoprof.suggest_targets", False)
    rules = suggest(model)
    config = {"targets": list(rules)} if isinstance(rules, (list, tuple)) else rules
    return judge_model(model, 60, config).named(r"layers\.\*(\..*)?")


@program("targets", "a child's .forward() called directly: the phases are whole and the report says so")
def child_forward_called_directly() -> Judge:
    model = Parts(
        lambda net, x: net.second(net.first.forward(x)), first=Sleep(3, 3, "first"), second=Sleep(1, 1, "second")
    )
    return judge_model(model).says("the direct call", r"\.forward\(\)|called directly|never called")


@program("targets", "a model of parameters and functions without a module inside")
def functional_model() -> Judge:
    def loop(net: Any, x: Tensor) -> Tensor:
        for one in net.weights:
            x = sleep_op(x, one, 1.5, 1.5)
        rest(1)
        return x

    return judge_model(Parts(loop, weights=nn.ParameterList(weight() for _ in range(3))))


@program("targets", "one leaf as the whole model")
def leaf_model() -> Judge:
    return judge_model(Parts(lambda net, x: sleep_op(x, net.weight, 4, 5), weight=weight()))


@program("targets", "a recurrent cell called eight times a step")
def recurrent_cell() -> Judge:
    def loop(net: Any, x: Tensor) -> Any:
        for _ in range(8):
            x = net.cell(x)
        return net.head(x)

    model = Parts(loop, cell=Sleep(0.8, 0.8, "cell"), head=Sleep(1, 1, "head"))
    return judge_model(model).hottest("cell").row("cell", "forward").row("cell", "backward")


class Experts(Root):
    """A mixture of experts, of which each batch takes two of eight."""

    def __init__(self) -> None:
        super().__init__()
        self.experts, self.count = nn.ModuleList(Sleep(3, 3, "expert") for _ in range(8)), 0

    @clocked
    def mix(self, x: Tensor) -> Any:
        self.count += 1
        return self.experts[self.count % 8](x) + self.experts[(self.count + 3) % 8](x)

    def forward(self, x: Tensor) -> Any:
        return self.mix(x)


@program("targets", "a mixture of experts: each step calls two of eight")
def mixture_of_experts() -> Judge:
    return judge_model(Experts()).named(r"experts\.\*").row(r"experts\.\*", "forward", "expert")


@contextmanager
def two_busy_processes() -> Iterator[None]:
    """Keep two processors busy meanwhile; the processes end by themselves, too."""
    spin = "import time\nend = time.monotonic() + 120\nwhile time.monotonic() < end: pass"
    busy = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(2)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


def stages_in_turn(net: Any, x: Tensor) -> Any:
    """Call the first layer, the stages and the last layer."""
    x = net.first(x)
    for stage in net.stages:
        x = stage(x)
    return net.last(x)


def eight_stages(config: Any = None) -> Judge:
    """Train eight stages that compute, beside two busy processes."""
    stages = nn.ModuleList(nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(8))
    model = Parts(stages_in_turn, first=nn.Linear(16, 256), stages=stages, last=nn.Linear(256, 1))
    torch.set_num_threads(1)  # several would wait for one another at each operation
    with two_busy_processes():
        session = autoprof.instrument(model, config, optimizer=(optimizer := sgd(model)))
        train(model, optimizer, 40)
        return Judge(session).steps().closes()


@program("targets", "beside two busy processes: each of the eight stages that the rules name has its row")
def rules_on_a_busy_machine() -> Judge:
    judge = eight_stages({"targets": [{"match": r"stages\.(\d)", "name": r"Model/Stage\1"}]})
    for stage in range(8):
        judge.named(rf"Model\.Stage{stage}").named(rf"Model\.Stage{stage}", "backward")
    return judge.recorded(0.5)


@program("targets", "beside two busy processes: the default opens the eight stages under one name")
def default_on_a_busy_machine() -> Judge:
    return eight_stages().named(r"stages\.\*").named(r"stages\.\*", "backward").recorded(0.5)
