"""Models of operations of known length: the truth that rows inside compiled graphs are compared with."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..models import Batch, squares
from .case import CLOCK, PHASES, Case

# tag -> (forward ms, backward ms); a tuple in place of a number: one length a call, in turn
LENGTHS: dict[int, tuple[Any, Any]] = {}
_turn: dict[tuple[int, bool], int] = {}
_dry = [False]  # True: the ops take no time (only to learn who calls them)


def _wait(tag: int, back: bool) -> None:
    t0 = time.perf_counter_ns()
    ms = LENGTHS[tag][back]
    if isinstance(ms, tuple):
        n = _turn.get((tag, back), 0)
        _turn[tag, back] = n + 1
        ms = ms[n % len(ms)]
    if _dry[0]:
        ms = 0
    end = t0 + int(ms * 1e6)
    rest_s = (end - time.perf_counter_ns()) / 1e9 - 3e-4  # the last 0.3 ms are spun, for a sleep ends late
    if rest_s > 0:
        time.sleep(rest_s)
    while time.perf_counter_ns() < end:
        pass
    phase = "backward" if back else "recompute" if CLOCK.in_backward else "forward"
    CLOCK.log.append((tag, phase, time.perf_counter_ns() - t0, CLOCK.stack[-1] if CLOCK.stack else None))


def _new(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _operator(name: str, schema: str, compute: Any, fake: Any, *, back: bool = False) -> Any:
    """Return an operation that takes the time of its tag, its last argument, and computes something short."""

    def run(*args: Any) -> Any:
        _wait(args[-1], back)
        return compute(*args)

    made: Any = torch.library.custom_op(f"referee::{name}", run, mutates_args=(), schema=schema)
    made.register_fake(fake)
    return made


def _pair(a: Any, *_: Any) -> Any:
    return _new(a), _new(a)


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.tag = inputs[-1]
    ctx.save_for_backward(output if isinstance(output, Tensor) else output[0])


def _copy(x: Any, *_: Any) -> Any:
    return _new(x).copy_(x)


def _like(x: Any, *_: Any) -> Any:
    return _new(x)


def _both(a: Any, b: Any, *_: Any) -> Any:
    return a + b, a - b


_BACK = "(Tensor g, Tensor h, Tensor y, int tag) -> "
work = _operator("work", "(Tensor x, int tag) -> Tensor", _copy, _like)
work_back = _operator("work_back", "(Tensor g, Tensor y, int tag) -> Tensor", _copy, _like, back=True)
work.register_autograd(lambda ctx, g: (work_back(g, ctx.saved_tensors[0], ctx.tag), None), setup_context=_setup)
# two inputs, two outputs; its backward has two outputs too, which go to different modules
mix = _operator("mix", "(Tensor a, Tensor b, int tag) -> (Tensor, Tensor)", _both, _pair)
mix_back = _operator("mix_back", _BACK + "(Tensor, Tensor)", _both, _pair, back=True)
mix.register_autograd(lambda ctx, g, h: (*mix_back(g, h, ctx.saved_tensors[0], ctx.tag), None), setup_context=_setup)
D, B = 16, 8
CASES: list[Case] = []
_base = [0]
_next = [0]


def tag(f: Any, b: Any) -> int:
    """Return the number of a new operation with these lengths."""
    t = _base[0] + _next[0]
    _next[0] += 1
    LENGTHS[t] = (f, b)
    return t


def batches(sizes: Sequence[int] = (B,)) -> Batch:
    """Return batches of these sizes in turn."""

    def make_batch(i: int) -> Any:
        return (torch.randn(sizes[i % len(sizes)], D, generator=torch.Generator().manual_seed(1000 + i)),), {}, None

    return make_batch


def loss_fn(out: Any, target: Any = None) -> Any:
    """Return the sum of the mean squares of all outputs."""
    return sum(squares(one, None) for one in (out if isinstance(out, (tuple, list)) else [out]))


def _owners(model: nn.Module) -> dict[int, list[str]]:
    """Return the modules whose forward called each operation, call by call, in an eager forward."""
    stack: list[str] = []
    CLOCK.stack, CLOCK.in_backward, _dry[0] = stack, False, True
    CLOCK.log.clear()
    handles = []
    for path, m in model.named_modules():
        handles.append(m.register_forward_pre_hook(lambda _m, _a, path=path: stack.append(path)))
        handles.append(m.register_forward_hook(lambda _m, _a, _o: stack.pop() and None))
    with torch.no_grad():
        model(*batches()(0)[0])
    for h in handles:
        h.remove()
    out: dict[int, list[str]] = {}
    for t, _, _, path in CLOCK.log:
        assert path is not None
        out.setdefault(t, []).append(path)
    CLOCK.stack, _dry[0] = None, False
    CLOCK.log.clear()
    _turn.clear()
    return out


def measured(case: Case, cost_ms: float = 0.0) -> dict[str, list[float]]:
    """Return the time of each module in forward, backward and recompute of the logged step, with the modules inside it.

    The operations' own clock measures it; ``cost_ms`` is the time of torch's call of an operation around it.
    """
    calls: dict[tuple[int, str], list[float]] = {}
    for operation, phase, ns, _ in CLOCK.log:
        calls.setdefault((operation, phase), []).append(ns / 1e6 + cost_ms)
    own: dict[str, list[float]] = {}
    for (operation, phase), times in calls.items():
        paths = case.owners[operation]
        if phase != "forward":
            paths = paths[::-1]
        for at, ms in enumerate(times):
            own.setdefault(paths[at % len(paths)], [0.0] * len(PHASES))[PHASES.index(phase)] += ms
    return {
        path: [
            sum(times[at] for inner, times in own.items() if not path or f"{inner}.".startswith(f"{path}."))
            for at in range(len(PHASES))
        ]
        for path in case.rows
    }


def call_cost_ms() -> float:
    """Return the time of torch's call of an operation, and of a small kernel before it, without the operation.

    The operation waits as those of the models do: what comes after a pause is slower than in a loop.
    """
    x = torch.ones(B, D)
    LENGTHS[0] = (1, 0)
    costs = []
    for _ in range(100):
        CLOCK.log.clear()
        began = time.perf_counter_ns()
        work(torch.tanh(x), 0)
        costs.append(time.perf_counter_ns() - began - CLOCK.log[0][2])
    CLOCK.log.clear()
    return median(costs) / 1e6


def case(
    name: str,
    fn: Callable[[], nn.Module],
    note: str = "",
    *,
    base: int | None = None,
    sizes: Sequence[int] = (B,),
    skip: Sequence[str] = (),
    **kw: Any,
) -> Case:
    """Add a case; its known rows are those of the modules that call operations, and of all modules around them."""
    number = (len(CASES) + 1) * 1000 if base is None else base

    def build() -> Any:
        _base[0], _next[0] = number, 0
        return fn(), batches(sizes), loss_fn

    state = torch.get_rng_state()
    model = build()[0]
    owners = _owners(model)
    torch.set_rng_state(state)
    paths = {path for of in owners.values() for path in of}
    rows = tuple(
        path
        for path, module in model.named_modules()
        if not isinstance(module, (nn.ModuleList, nn.ModuleDict))
        and path not in skip
        and any(not path or f"{inner}.".startswith(f"{path}.") for inner in paths)
    )
    CASES.append(Case(name, build, note=note, owners=owners, rows=rows, **kw))
    return CASES[-1]


class Leaf(nn.Module):
    """A small linear, then the op: the op is the module's own, `lin` takes microseconds."""

    def __init__(self, f: Any, b: Any, inp: int = D, out: int = D) -> None:
        super().__init__()
        self.lin = nn.Linear(inp, out)
        self.tag = tag(f, b)

    def forward(self, x: Any) -> Any:
        return work(torch.tanh(self.lin(x)), self.tag)


def net(forward: Callable[..., Any], **parts: Any) -> nn.Module:
    """Return a module of a class of its own with this forward; a pair of lengths becomes a leaf."""
    made: nn.Module = type("Net", (nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        setattr(made, name, Leaf(*part) if isinstance(part, tuple) else part)
    return made


def _in_turn(self: Any, x: Any) -> Any:
    for child in self.children():
        x = child(x)
    return x


def row(**parts: Any) -> nn.Module:
    """Return a module that calls its parts one after the other."""
    return net(_in_turn, **parts)


class Pair(nn.Module):
    """Two leaves: blocks of this class share one compiled code."""

    def __init__(self, a: Any, b: Any) -> None:
        super().__init__()
        self.one, self.two = Leaf(*a), Leaf(*b)

    def forward(self, x: Any) -> Any:
        return self.two(self.one(x))


def chain() -> nn.Module:
    """Return four leaves in a row."""
    return row(a=(4, 7), b=(9, 3), c=(2, 11), d=(6, 5))


case("chain", chain)


def _block_forward(self: Any, x: Any) -> Any:
    x = x + self.attn(x)
    x = work(x, self.tag)
    return x + self.mlp(x)


def _nested_block(own: Any, inner: Any, mlp: Any) -> nn.Module:
    def attend(self: Any, x: Any) -> Any:
        return self.o(work(self.q(x), self.tag))

    return net(_block_forward, attn=net(attend, q=inner[1], o=inner[2], tag=tag(*inner[0])), mlp=mlp, tag=tag(*own))


def _nested(self: Any, x: Any) -> Any:
    for b in self.blocks:
        x = b(x)
    return self.head(x)


case(
    "nested",
    lambda: net(
        _nested,
        blocks=nn.ModuleList(
            [
                _nested_block((1, 2), ((2, 1), (3, 4), (1, 5)), (4, 2)),
                _nested_block((2, 3), ((1, 2), (2, 6), (5, 1)), (3, 7)),
            ]
        ),
        head=(2, 4),
    ),
)
SAME = [(1, 8), (9, 2), (2, 7), (8, 3), (3, 6), (7, 4)]
case("same_class", lambda: nn.Sequential(*[Leaf(*v) for v in SAME]), "one class, different lengths")
case(
    "shared_twice",
    lambda: net(lambda m, x: m.post(m.shared(m.shared(m.pre(x)) * 0.5)), pre=(3, 2), shared=(5, 8), post=(2, 3)),
)


def _tied() -> nn.Module:
    shared = Leaf(4, 6)
    return row(enc=row(own=(3, 1), shared=shared), dec=row(own=(2, 5), shared=shared))


_alias = case("tied_alias", _tied, "enc.shared IS dec.shared: its row has either name", skip=("enc.shared",))
for _paths in _alias.owners.values():
    if len(_paths) == 2:  # one object under two parents: its first call is that of the one, its last that of the other
        _paths[1] = "dec.shared"


def _branches(self: Any, x: Any) -> Any:
    x = self.stem(x)
    return self.join(torch.cat([self.left(x), self.right(x)], -1))


case(
    "branch_join",
    lambda: net(_branches, stem=(2, 3), left=nn.Sequential(Leaf(4, 2), Leaf(1, 6)), right=(7, 5), join=(3, 9, 2 * D)),
)


def _cross(self: Any, x: Any) -> Any:
    p, q = self.mix(self.a(x), self.b(x))
    return self.c(p), self.d(q)


case(
    "cross_mix",
    lambda: net(
        _cross, a=(2, 3), b=(3, 2), mix=net(lambda m, a, b: mix(a, b, m.tag), tag=tag(7, 10)), c=(1, 4), d=(4, 1)
    ),
)


def _root_own(self: Any, x: Any) -> Any:
    x = work(x * self.w, self.t0)
    x = work(self.a(x), self.t1)
    return work(self.b(x), self.t2)


case(
    "root_own",
    lambda: net(_root_own, a=(3, 4), b=(5, 2), t0=tag(2, 6), t1=tag(4, 1), t2=tag(1, 3), w=nn.Parameter(torch.ones(D))),
)


def _out_of_order(self: Any, x: Any) -> Any:
    for i in (2, 0, 3, 1):
        x = self.layers[i](x)
    return self.last(self.heads["box"](x) + self.heads["cls"](x))


case(
    "module_list",
    lambda: net(
        _out_of_order,
        last=(6, 1),
        layers=nn.ModuleList([Leaf(i + 1, 7 - 2 * i) for i in range(4)]),
        heads=nn.ModuleDict({"cls": Leaf(2, 8), "box": Leaf(5, 3)}),
        unused=(9, 9),
    ),
    "`unused` is never called",
)


def _checkpointed() -> nn.Module:
    def forward(self: Any, x: Any) -> Any:
        return self.post(checkpoint(self.block, self.pre(x), use_reentrant=False))

    return net(forward, pre=(2, 3), block=Pair((4, 5), (6, 2)), post=(1, 4))


def _compile_block(model: Any) -> Any:
    model.block.compile(fullgraph=True)
    return model


case("checkpoint_inside", _checkpointed, "recompute in the backward graph")
case(
    "checkpoint_outside",
    _checkpointed,
    "eager root checkpoints a compiled block: its forward graph runs again in the backward",
    compile=_compile_block,
)


def _regional() -> nn.Module:
    return row(pre=(2, 3), block=Pair((4, 8), (7, 2)), post=(5, 1))


def _swap(model: Any) -> Any:
    model.block = torch.compile(model.block, fullgraph=True)
    return model


case("regional_method", _regional, "model.block.compile()", compile=_compile_block)
case("regional_wrapper", _regional, "model.block = torch.compile(model.block)", compile=_swap)


def _blocks() -> nn.Module:
    """Return three blocks with one compiled code: the ops share a tag, their lengths go round by call."""
    one, two = tag((2, 4, 6), (9, 5, 1)), tag((3, 1, 5), (2, 8, 4))  # backward: last block first
    blocks = [Pair((0, 0), (0, 0)) for _ in range(3)]
    for b in blocks:
        b.one.tag, b.two.tag = one, two

    def forward(self: Any, x: Any) -> Any:
        for b in self.blocks:
            x = b(x)
        return x

    return net(forward, blocks=nn.ModuleList(blocks))


def _each(model: Any) -> Any:
    for b in model.blocks:
        b.compile(fullgraph=True)
    return model


case("regional_blocks", _blocks, "block.compile() for three blocks that share ONE compiled code", compile=_each)
case("blocks_one_graph", _blocks, "the same three blocks in one full graph")


def _broken_inside(self: Any, x: Any) -> Any:
    x = self.one(x)
    torch._dynamo.graph_break()
    return self.two(x)


case(
    "graph_break_inside",
    lambda: row(pre=(2, 1), mid=net(_broken_inside, one=(3, 6), two=(5, 2)), post=(4, 3)),
    "break in a child's forward",
    fullgraph=False,
)
case("autocast_outside", chain, "around the call", context=lambda: torch.autocast("cpu", torch.bfloat16))


case("dynamic_auto", chain, "static first, one recompilation at the second step", sizes=(8, 12, 6, 20))


def _frozen() -> nn.Module:
    def forward(self: Any, x: Any) -> Any:
        with torch.no_grad():
            t = self.teacher(x)
        return self.head(self.gate(self.body(x) + t))

    made = net(forward, teacher=(8, 99), body=(3, 4), gate=(0, 9), head=(5, 0))
    made.get_submodule("teacher").requires_grad_(False)
    return made


case("frozen", _frozen, "teacher has no backward, gate nearly no forward, head nearly no backward")


def _unrolled(self: Any, x: Any) -> Any:
    x = self.emb(x)
    h = torch.zeros_like(x)
    for i in range(5):
        h = self.cell(torch.cat([h, x * (i + 1)], -1))
    return self.head(h)


case("unrolled_cell", lambda: net(_unrolled, emb=(2, 1), cell=(1.5, 2.5, 2 * D), head=(3, 4)), "one cell, five calls")


class Group(nn.Module):
    """Children in a row: one graph for all hierarchies of this class, whose names must not be the other's."""

    def __init__(self, **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x: Any) -> Any:
        return _in_turn(self, x)


def _split(at: int) -> nn.Module:
    leaves = [Leaf(f, b) for f, b in ((3, 8), (9, 2), (1, 5))]
    return Group(left=nn.Sequential(*leaves[:at]), right=nn.Sequential(*leaves[at:]))


def _named(*names: str) -> nn.Module:
    return Group(**{name: Leaf(f, b) for name, (f, b) in zip(names, ((3, 8), (9, 2), (1, 5)), strict=True)})


case("same_graph_a", lambda: _split(1), "the same fx graph as same_graph_b, another hierarchy", base=900000)
case("same_graph_b", lambda: _split(2), "run after same_graph_a with the same cache", base=900000)
case("same_graph_c", lambda: _named("z", "x", "y"), "a third, with other names", base=900000)


class UserFunction(torch.autograd.Function):
    """An ``autograd.Function`` of the user's around the ops."""

    @staticmethod
    def forward(ctx: Any, x: Any, t: Any, u: Any) -> Any:
        y = work(x, t)
        ctx.save_for_backward(y)
        ctx.u = u
        return y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (y,) = ctx.saved_tensors
        return work_back(g, y, ctx.u), None, None


def _user(f: Any, b: Any) -> nn.Module:
    def forward(self: Any, x: Any) -> Any:
        return UserFunction.apply(self.lin(x), self.t, self.u)  # type: ignore[no-untyped-call]

    return net(forward, lin=nn.Linear(D, D), t=tag(f, 0), u=tag(0, b))


_function = case(
    "autograd_function",
    lambda: nn.Sequential(_user(4, 9), Leaf(2, 3), _user(6, 5)),
    "torch.autograd.Function around the ops",
)
_function.owners |= {t + 1: of for t, of in _function.owners.items() if not LENGTHS[t][1]}
"""The operation that only the backward calls is the next one."""


def _mixed(f: Any, b: Any) -> nn.Module:
    return net(
        lambda m, x: x + m.fc2(m.op(m.act(m.fc1(m.norm(x))))),
        norm=nn.LayerNorm(D), fc1=nn.Linear(D, 4 * D), act=nn.GELU(), op=(f, b, 4 * D, 4 * D), fc2=nn.Linear(4 * D, D),
    )  # fmt: skip


MIXED = [(1, 2), (2, 1), (1.5, 3), (3, 1.5), (0.8, 2.2), (2.2, 0.8), (1, 1), (2.5, 2.5)]
case("mixed_deep", lambda: nn.Sequential(*[_mixed(*v) for v in MIXED]), "short ops, real work between them")
BY_NAME = {one.name: one for one in CASES}
