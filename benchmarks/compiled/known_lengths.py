"""Models of operations of known length: the truth that rows inside compiled graphs are compared with."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .case import CLOCK, PHASES, Case, inclusive

# tag -> (forward ms, backward ms); a tuple in place of a number: one length a call, in turn
LENGTHS: dict[int, tuple[Any, Any]] = {}
_turn: dict[tuple[int, bool], int] = {}
_dry = [False]  # True: the ops take no time (only to learn who calls them)
SPIN: set[int] = set()  # tags that burn the core the whole time; the others sleep, and spin the last 0.3 ms


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
    if tag not in SPIN:
        rest = (end - time.perf_counter_ns()) / 1e9 - 3e-4
        if rest > 0:
            time.sleep(rest)
    while time.perf_counter_ns() < end:
        pass
    phase = "backward" if back else "recompute" if CLOCK.in_backward else "forward"
    CLOCK.log.append((tag, phase, time.perf_counter_ns() - t0, CLOCK.stack[-1] if CLOCK.stack else None))


def _new(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


# one output
@torch.library.custom_op("referee::work", mutates_args=())
def work(x: Tensor, tag: int) -> Tensor:
    _wait(tag, False)
    return _new(x).copy_(x)


@work.register_fake
def _(x: Any, tag: Any) -> Any:
    return _new(x)


@torch.library.custom_op("referee::work_back", mutates_args=())
def work_back(g: Tensor, y: Tensor, tag: int) -> Tensor:
    _wait(tag, True)
    return _new(g).copy_(g)


@work_back.register_fake
def _(g: Any, y: Any, tag: Any) -> Any:
    return _new(g)


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.tag = inputs[-1]
    ctx.save_for_backward(output if isinstance(output, Tensor) else output[0])


work.register_autograd(lambda ctx, g: (work_back(g, ctx.saved_tensors[0], ctx.tag), None), setup_context=_setup)


# two outputs
@torch.library.custom_op("referee::fork", mutates_args=())
def fork(x: Tensor, tag: int) -> tuple[Tensor, Tensor]:
    _wait(tag, False)
    return _new(x).copy_(x), x * 0.5


@fork.register_fake
def _(x: Any, tag: Any) -> Any:
    return _new(x), _new(x)


@torch.library.custom_op("referee::fork_back", mutates_args=())
def fork_back(g: Tensor, h: Tensor, y: Tensor, tag: int) -> Tensor:
    _wait(tag, True)
    return g + 0.5 * h


@fork_back.register_fake
def _(g: Any, h: Any, y: Any, tag: Any) -> Any:
    return _new(g)


fork.register_autograd(lambda ctx, g, h: (fork_back(g, h, ctx.saved_tensors[0], ctx.tag), None), setup_context=_setup)


# two inputs, two outputs; its backward has two outputs too, which go to different modules
@torch.library.custom_op("referee::mix", mutates_args=())
def mix(a: Tensor, b: Tensor, tag: int) -> tuple[Tensor, Tensor]:
    _wait(tag, False)
    return a + b, a - b


@mix.register_fake
def _(a: Any, b: Any, tag: Any) -> Any:
    return _new(a), _new(a)


@torch.library.custom_op("referee::mix_back", mutates_args=())
def mix_back(g: Tensor, h: Tensor, y: Tensor, tag: int) -> tuple[Tensor, Tensor]:
    _wait(tag, True)
    return g + h, g - h


@mix_back.register_fake
def _(g: Any, h: Any, y: Any, tag: Any) -> Any:
    return _new(g), _new(g)


mix.register_autograd(lambda ctx, g, h: (*mix_back(g, h, ctx.saved_tensors[0], ctx.tag), None), setup_context=_setup)


# a list of outputs
@torch.library.custom_op("referee::pieces", mutates_args=())
def pieces(x: Tensor, n: int, tag: int) -> list[Tensor]:
    _wait(tag, False)
    return [c.clone() for c in x.chunk(n, -1)]


@pieces.register_fake
def _(x: Any, n: Any, tag: Any) -> Any:
    return [torch.empty_like(c, memory_format=torch.contiguous_format) for c in x.chunk(n, -1)]


@torch.library.custom_op("referee::pieces_back", mutates_args=())
def pieces_back(g: list[Tensor], tag: int) -> Tensor:
    _wait(tag, True)
    return torch.cat(g, -1)


@pieces_back.register_fake
def _(g: Any, tag: Any) -> Any:
    return torch.cat(g, -1)


def _pieces_setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.tag = inputs[-1]


pieces.register_autograd(lambda ctx, g: (pieces_back(list(g), ctx.tag), None, None), setup_context=_pieces_setup)


# writes into a buffer, returns nothing, has no gradient
@torch.library.custom_op("referee::note", mutates_args=("buf",))
def note(buf: Tensor, x: Tensor, tag: int) -> None:
    _wait(tag, False)
    buf.add_(x.float().mean(0))


@note.register_fake
def _(buf: Any, x: Any, tag: Any) -> Any:
    return None


D, B = 16, 8
CASES: list[Case] = []
_base = [0]
_next = [0]


def tag(f: Any, b: Any, spin: Any = False) -> int:
    t = _base[0] + _next[0]
    _next[0] += 1
    LENGTHS[t] = (f, b)
    if spin:
        SPIN.add(t)
    return t


def batches(shape: Any = (B, D), sizes: Any = None) -> Any:
    def make_batch(i: int = 0) -> Any:
        g = torch.Generator().manual_seed(1000 + i)
        s = (sizes[i % len(sizes)], *shape[1:]) if sizes else shape
        return (torch.randn(s, generator=g),), {}, None

    return make_batch


def loss_fn(out: Any, target: Any = None) -> Any:
    if isinstance(out, (tuple, list)):
        return sum(o.float().pow(2).mean() for o in out)
    return out.float().pow(2).mean()


def _owners(model: Any, batch: Any, train: Any) -> Any:
    """Return the modules whose forward called each operation, call by call, in an eager forward."""
    stack: list[str] = []
    CLOCK.stack, CLOCK.in_backward, _dry[0] = stack, False, True
    CLOCK.log.clear()

    def pre(path: Any) -> Any:
        return lambda m, a: stack.append(path)

    def pop() -> None:
        stack.pop()

    handles = []
    for path, m in model.named_modules():
        handles.append(m.register_forward_pre_hook(pre(path)))
        handles.append(m.register_forward_hook(lambda m, a, o: pop()))
    with torch.no_grad():
        model(*batch[0], **batch[1])
    for h in handles:
        h.remove()
    out: dict[Any, Any] = {}
    for t, _, _, path in CLOCK.log:
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
        paths = case.owners.get(operation) or [case.back_only[operation]]
        if phase != "forward":
            paths = paths[::-1]
        for at, ms in enumerate(times):
            own.setdefault(paths[at % len(paths)], [0.0] * len(PHASES))[PHASES.index(phase)] += ms
    return {
        path: [
            sum(times[at] for inner, times in own.items() if not path or f"{inner}.".startswith(f"{path}."))
            for at in range(len(PHASES))
        ]
        for path in case.truth
    }


def calls(case: Case) -> dict[str, list[int]]:
    """Return the number of operations of the logged step by module and phase, with the modules inside it."""
    with_one, without = measured(case, 1.0), measured(case)
    return {
        path: [round(one - none) for one, none in zip(with_one[path], without[path], strict=True)]
        for path in case.truth
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


def case(name: Any, own: Any, *, base: Any = None, make: Any = None, skip: Any = (), **kw: Any) -> Any:
    """Add a case; ``own`` is the known time in each module's own forward: forward, backward, and recompute."""
    number = (len(CASES) + 1) * 1000 if base is None else base

    def wrap(fn: Any) -> Any:
        def build() -> Any:
            _base[0], _next[0] = number, 0
            return fn(), make or batches(), loss_fn

        state = torch.get_rng_state()
        model = build()[0]
        torch.set_rng_state(state)
        times: Any = {path: (*given, 0.0)[:3] for path, given in own.items()}
        truth = inclusive(model, times, skip)
        unknown = set(own) - {p for p, _ in model.named_modules(remove_duplicate=False)}
        assert not unknown, (name, unknown)
        owners = _owners(model, (make or batches())(0), kw.get("train", True))
        c = Case(name, build, truth=truth, **kw)
        c.own = times
        c.owners = owners
        CASES.append(c)
        return fn

    return wrap


class Leaf(nn.Module):
    """A small linear, then the op: the op is the module's own, `lin` takes microseconds."""

    def __init__(self, f: Any, b: Any, spin: Any = False, inp: Any = D, out: Any = D) -> None:
        super().__init__()
        self.lin = nn.Linear(inp, out)
        self.tag = tag(f, b, spin)

    def forward(self, x: Any) -> Any:
        return work(torch.tanh(self.lin(x)), self.tag)


# chain
class Chain(nn.Module):
    def __init__(self, spin: Any = False) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = Leaf(4, 7, spin), Leaf(9, 3, spin), Leaf(2, 11, spin), Leaf(6, 5, spin)

    def forward(self, x: Any) -> Any:
        return self.d(self.c(self.b(self.a(x))))


CHAIN = {"a": (4, 7), "b": (9, 3), "c": (2, 11), "d": (6, 5)}
case("chain", CHAIN)(Chain)
case("chain_spin", CHAIN, note="as chain, but the ops burn the core")(lambda: Chain(True))


# nested
class Inner(nn.Module):
    def __init__(self, own: Any, q: Any, o: Any) -> None:
        super().__init__()
        self.q, self.o, self.tag = Leaf(*q), Leaf(*o), tag(*own)

    def forward(self, x: Any) -> Any:
        return self.o(work(self.q(x), self.tag))


class Block(nn.Module):
    def __init__(self, own: Any, inner: Any, mlp: Any) -> None:
        super().__init__()
        self.attn, self.mlp, self.tag = Inner(*inner), Leaf(*mlp), tag(*own)

    def forward(self, x: Any) -> Any:
        x = x + self.attn(x)
        x = work(x, self.tag)
        return x + self.mlp(x)


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            [Block((1, 2), ((2, 1), (3, 4), (1, 5)), (4, 2)), Block((2, 3), ((1, 2), (2, 6), (5, 1)), (3, 7))]
        )
        self.head = Leaf(2, 4)

    def forward(self, x: Any) -> Any:
        for b in self.blocks:
            x = b(x)
        return self.head(x)


case(
    "nested",
    {
        "blocks.0": (1, 2),
        "blocks.0.attn": (2, 1),
        "blocks.0.attn.q": (3, 4),
        "blocks.0.attn.o": (1, 5),
        "blocks.0.mlp": (4, 2),
        "blocks.1": (2, 3),
        "blocks.1.attn": (1, 2),
        "blocks.1.attn.q": (2, 6),
        "blocks.1.attn.o": (5, 1),
        "blocks.1.mlp": (3, 7),
        "head": (2, 4),
    },
)(Nested)

# one class, different lengths
SAME = [(1, 8), (9, 2), (2, 7), (8, 3), (3, 6), (7, 4)]
case("same_class", {str(i): v for i, v in enumerate(SAME)})(lambda: nn.Sequential(*[Leaf(*v) for v in SAME]))


# shared, called twice
class SharedTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pre, self.shared, self.post = Leaf(3, 2), Leaf(5, 8), Leaf(2, 3)

    def forward(self, x: Any) -> Any:
        x = self.shared(self.pre(x))
        return self.post(self.shared(x * 0.5))


case("shared_twice", {"pre": (3, 2), "shared": (10, 16), "post": (2, 3)})(SharedTwice)


# one module under two parents (an alias)
class Holder(nn.Module):
    def __init__(self, own: Any, shared: Any) -> None:
        super().__init__()
        self.own, self.shared = Leaf(*own), shared

    def forward(self, x: Any) -> Any:
        return self.shared(self.own(x))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        shared = Leaf(4, 6)
        self.enc, self.dec = Holder((3, 1), shared), Holder((2, 5), shared)

    def forward(self, x: Any) -> Any:
        return self.dec(self.enc(x))


case(
    "tied_alias",
    {"enc.own": (3, 1), "dec.own": (2, 5), "enc.shared": (4, 6), "dec.shared": (4, 6)},
    skip=("enc.shared", "enc.shared.lin"),
    note="enc.shared IS dec.shared: its own row may bear either name",
)(Tied)


# branch and join
class Join(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.left, self.right = Leaf(2, 3), nn.Sequential(Leaf(4, 2), Leaf(1, 6)), Leaf(7, 5)
        self.join = Leaf(3, 9, inp=2 * D)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        return self.join(torch.cat([self.left(x), self.right(x)], -1))


case("branch_join", {"stem": (2, 3), "left.0": (4, 2), "left.1": (1, 6), "right": (7, 5), "join": (3, 9)})(Join)


# residual
class Residual(nn.Module):
    def __init__(self, f: Any, b: Any) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(D), Leaf(f, b)

    def forward(self, x: Any) -> Any:
        return F.relu(x + self.inner(self.norm(x)))


case("residual", {"0.inner": (3, 8), "1.inner": (6, 2), "2.inner": (2, 5)})(
    lambda: nn.Sequential(Residual(3, 8), Residual(6, 2), Residual(2, 5))
)


# two outputs, used by different modules
class Fork(nn.Module):
    def __init__(self, f: Any, b: Any) -> None:
        super().__init__()
        self.lin, self.tag = nn.Linear(D, D), tag(f, b)

    def forward(self, x: Any) -> Any:
        return fork(self.lin(x), self.tag)


class TwoOut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fork, self.up, self.down = Fork(6, 9), Leaf(2, 4), Leaf(5, 3)

    def forward(self, x: Any) -> Any:
        u, v = self.fork(x)
        return self.up(u), self.down(v)


case("two_outputs", {"fork": (6, 9), "up": (2, 4), "down": (5, 3)})(TwoOut)


# two inputs and two outputs, in the backward as well
class Mix(nn.Module):
    def __init__(self, f: Any, b: Any) -> None:
        super().__init__()
        self.tag = tag(f, b)

    def forward(self, a: Any, b: Any) -> Any:
        return mix(a, b, self.tag)


class Cross(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.mix, self.c, self.d = Leaf(2, 3), Leaf(3, 2), Mix(7, 10), Leaf(1, 4), Leaf(4, 1)

    def forward(self, x: Any) -> Any:
        p, q = self.mix(self.a(x), self.b(x))
        return self.c(p), self.d(q)


case("cross_mix", {"a": (2, 3), "b": (3, 2), "mix": (7, 10), "c": (1, 4), "d": (4, 1)})(Cross)


# list of outputs
class Pieces(nn.Module):
    def __init__(self, f: Any, b: Any) -> None:
        super().__init__()
        self.lin, self.tag = nn.Linear(D, 3 * D), tag(f, b)

    def forward(self, x: Any) -> Any:
        return pieces(self.lin(x), 3, self.tag)


class ListOut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cut, self.q, self.k, self.v = Pieces(8, 5), Leaf(1, 2), Leaf(2, 3), Leaf(3, 1)

    def forward(self, x: Any) -> Any:
        q, k, v = self.cut(x)
        return self.q(q) * self.k(k) + self.v(v)


case("list_output", {"cut": (8, 5), "q": (1, 2), "k": (2, 3), "v": (3, 1)})(ListOut)


# op in the root's forward
class RootOwn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Leaf(3, 4), Leaf(5, 2)
        self.t0, self.t1, self.t2 = tag(2, 6), tag(4, 1), tag(1, 3)
        self.w = nn.Parameter(torch.ones(D))

    def forward(self, x: Any) -> Any:
        x = work(x * self.w, self.t0)
        x = work(self.a(x), self.t1)
        return work(self.b(x), self.t2)


case("root_own", {"": (7, 10), "a": (3, 4), "b": (5, 2)})(RootOwn)


# module list and dict, out of order
class Lists(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = Leaf(6, 1)  # defined first, called last
        self.layers = nn.ModuleList([Leaf(i + 1, 7 - 2 * i) for i in range(4)])
        self.heads = nn.ModuleDict({"cls": Leaf(2, 8), "box": Leaf(5, 3)})
        self.unused = Leaf(9, 9)

    def forward(self, x: Any) -> Any:
        for i in (2, 0, 3, 1):
            x = self.layers[i](x)
        return self.last(self.heads["box"](x) + self.heads["cls"](x))


case(
    "module_list",
    {
        "last": (6, 1),
        "layers.0": (1, 7),
        "layers.1": (2, 5),
        "layers.2": (3, 3),
        "layers.3": (4, 1),
        "heads.cls": (2, 8),
        "heads.box": (5, 3),
    },
    note="`unused` is never called",
)(Lists)


# recompute inside the graph
class Pair(nn.Module):
    def __init__(self, a: Any, b: Any) -> None:
        super().__init__()
        self.one, self.two = Leaf(*a), Leaf(*b)

    def forward(self, x: Any) -> Any:
        return self.two(self.one(x))


class Ckpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pre, self.block, self.post = Leaf(2, 3), Pair((4, 5), (6, 2)), Leaf(1, 4)

    def forward(self, x: Any) -> Any:
        x = self.pre(x)
        x = checkpoint(self.block, x, use_reentrant=False)
        return self.post(x)


case(
    "checkpoint_inside",
    {"pre": (2, 3), "block.one": (4, 5, 4), "block.two": (6, 2, 6), "post": (1, 4)},
    note="recompute in the backward graph",
)(Ckpt)


def _block(model: Any) -> Any:
    model.block.compile(fullgraph=True)
    return model


case(
    "checkpoint_outside",
    {"pre": (2, 3), "block.one": (4, 5, 4), "block.two": (6, 2, 6), "post": (1, 4)},
    compile=_block,
    note="eager root checkpoints a compiled block: its forward graph runs again in the backward",
)(Ckpt)


# regional compilation
class Regional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pre, self.block, self.post = Leaf(2, 3), Pair((4, 8), (7, 2)), Leaf(5, 1)

    def forward(self, x: Any) -> Any:
        return self.post(self.block(self.pre(x)))


REG = {"pre": (2, 3), "block.one": (4, 8), "block.two": (7, 2), "post": (5, 1)}
case("regional_method", REG, compile=_block, note="model.block.compile()")(Regional)


def _swap(model: Any) -> Any:
    model.block = torch.compile(model.block, fullgraph=True)
    return model


case("regional_wrapper", REG, compile=_swap, note="model.block = torch.compile(model.block); paths without _orig_mod")(
    Regional
)


class Blocks(nn.Module):
    """Three blocks, one compiled code: the ops share a tag, their lengths go round by call."""

    def __init__(self) -> None:
        super().__init__()
        one, two = tag((2, 4, 6), (9, 5, 1)), tag((3, 1, 5), (2, 8, 4))  # backward: last block first
        self.blocks = nn.ModuleList([Pair((0, 0), (0, 0)) for _ in range(3)])
        made: Any = self.blocks
        for b in made:
            b.one.tag, b.two.tag = one, two

    def forward(self, x: Any) -> Any:
        for b in self.blocks:
            x = b(x)
        return x


def _each(model: Any) -> Any:
    for b in model.blocks:
        b.compile(fullgraph=True)
    return model


BLOCKS = {
    "blocks.0.one": (2, 1),
    "blocks.1.one": (4, 5),
    "blocks.2.one": (6, 9),
    "blocks.0.two": (3, 4),
    "blocks.1.two": (1, 8),
    "blocks.2.two": (5, 2),
}
case("regional_blocks", BLOCKS, compile=_each, note="block.compile() for three blocks that share ONE compiled code")(
    Blocks
)
case("blocks_one_graph", BLOCKS, note="the same three blocks in one full graph")(Blocks)


# graph breaks
class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = Leaf(3, 6), Leaf(5, 2), Leaf(2, 7), Leaf(4, 4)

    def forward(self, x: Any) -> Any:
        x = self.b(self.a(x))
        torch._dynamo.graph_break()
        return self.d(self.c(x))


case(
    "graph_break",
    {"a": (3, 6), "b": (5, 2), "c": (2, 7), "d": (4, 4)},
    fullgraph=False,
    note="two graphs, break in the root",
)(Broken)


class BreakInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Leaf(3, 6), Leaf(5, 2)

    def forward(self, x: Any) -> Any:
        x = self.one(x)
        torch._dynamo.graph_break()
        return self.two(x)


class Broken2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pre, self.mid, self.post = Leaf(2, 1), BreakInside(), Leaf(4, 3)

    def forward(self, x: Any) -> Any:
        return self.post(self.mid(self.pre(x)))


case(
    "graph_break_inside",
    {"pre": (2, 1), "mid.one": (3, 6), "mid.two": (5, 2), "post": (4, 3)},
    fullgraph=False,
    note="break in a child's forward",
)(Broken2)

# autocast
case(
    "autocast_outside",
    CHAIN,
    context=lambda: torch.autocast("cpu", torch.bfloat16),
    note="with torch.autocast around the call",
)(Chain)


class Cast(Chain):
    def forward(self, x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            x = self.b(self.a(x))
        return self.d(self.c(x.float()))


case("autocast_inside", CHAIN)(Cast)

# dynamic shapes
case("dynamic", CHAIN, make=batches(sizes=(8, 12, 6, 20)), dynamic=True, note="batch size changes every step")(Chain)
case(
    "dynamic_auto",
    CHAIN,
    make=batches(sizes=(8, 12, 6, 20)),
    note="dynamic=None: static first, one recompilation at the second step",
)(Chain)


# writes into a buffer
class Noted(nn.Module):
    def __init__(self, n: Any, f: Any, b: Any) -> None:
        super().__init__()
        self.leaf, self.ntag = Leaf(f, b), tag(n, 0)
        self.register_buffer("buf", torch.zeros(D))

    def forward(self, x: Any) -> Any:
        x = self.leaf(x)
        note(self.buf, x.detach(), self.ntag)
        return x


case("mutates_buffer", {"0": (4, 0), "0.leaf": (2, 6), "1": (7, 0), "1.leaf": (3, 1)})(
    lambda: nn.Sequential(Noted(4, 2, 6), Noted(7, 3, 1))
)


# frozen part: forward only; identity: backward only
class Frozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.teacher, self.body, self.gate, self.head = Leaf(8, 99), Leaf(3, 4), Leaf(0, 9), Leaf(5, 0)
        for p in self.teacher.parameters():
            p.requires_grad_(False)

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            t = self.teacher(x)
        return self.head(self.gate(self.body(x) + t))


case(
    "frozen",
    {"teacher": (8, 0), "body": (3, 4), "gate": (0, 9), "head": (5, 0)},
    note="teacher has no backward, gate nearly no forward, head nearly no backward",
)(Frozen)


# one cell, five calls (recurrent, unrolled)
class Rnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb, self.cell, self.head = Leaf(2, 1), Leaf(1.5, 2.5, inp=2 * D), Leaf(3, 4)

    def forward(self, x: Any) -> Any:
        x = self.emb(x)
        h = torch.zeros_like(x)
        for i in range(5):
            h = self.cell(torch.cat([h, x * (i + 1)], -1))
        return self.head(h)


case("unrolled_cell", {"emb": (2, 1), "cell": (7.5, 12.5), "head": (3, 4)})(Rnn)


# one graph, two hierarchies: the names must not be the other's
class Group(nn.Module):
    def __init__(self, *kids: Any) -> None:
        super().__init__()
        for name, k in kids:
            self.add_module(name, k)

    def forward(self, x: Any) -> Any:
        for k in self.children():
            x = k(x)
        return x


def _hier(cut: Any) -> Any:
    leaves = [Leaf(f, b) for f, b in ((3, 8), (9, 2), (1, 5))]
    left, right = leaves[:cut], leaves[cut:]
    return Group(("left", nn.Sequential(*left)), ("right", nn.Sequential(*right)))


case(
    "same_graph_a",
    {"left.0": (3, 8), "right.0": (9, 2), "right.1": (1, 5)},
    base=900000,
    note="the same fx graph as same_graph_b, an FX cache hit, another hierarchy",
)(lambda: _hier(1))
case(
    "same_graph_b",
    {"left.0": (3, 8), "left.1": (9, 2), "right.0": (1, 5)},
    base=900000,
    note="run after same_graph_a with the same cache",
)(lambda: _hier(2))


def _named(a: Any, b: Any, c: Any) -> Any:
    return Group((a, Leaf(3, 8)), (b, Leaf(9, 2)), (c, Leaf(1, 5)))


case("same_graph_c", {"x": (3, 8), "y": (9, 2), "z": (1, 5)}, base=900000, note="and a third")(
    lambda: _named("x", "y", "z")
)
case("same_graph_d", {"z": (3, 8), "x": (9, 2), "y": (1, 5)}, base=900000, note="and a fourth: the names of c, moved")(
    lambda: _named("z", "x", "y")
)

# inference
case("inference", {k: (f, 0) for k, (f, b) in CHAIN.items()}, train=False, note="model.eval(), no_grad")(Chain)


# an autograd.Function of the user's
class MyFn(torch.autograd.Function):
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


class UserFn(nn.Module):
    def __init__(self, f: Any, b: Any) -> None:
        super().__init__()
        self.lin, self.t, self.u = nn.Linear(D, D), tag(f, 0), tag(0, b)

    def forward(self, x: Any) -> Any:
        return MyFn.apply(self.lin(x), self.t, self.u)  # type: ignore[no-untyped-call]


case("autograd_function", {"0": (4, 9), "1": (2, 3), "2": (6, 5)}, note="torch.autograd.Function around the ops")(
    lambda: nn.Sequential(UserFn(4, 9), Leaf(2, 3), UserFn(6, 5))
)


# many short ops, real work between
class Mixed(nn.Module):
    def __init__(self, f: Any, b: Any) -> None:
        super().__init__()
        self.norm, self.fc1, self.act, self.op, self.fc2 = (
            nn.LayerNorm(D),
            nn.Linear(D, 4 * D),
            nn.GELU(),
            Leaf(f, b, inp=4 * D, out=4 * D),
            nn.Linear(4 * D, D),
        )

    def forward(self, x: Any) -> Any:
        return x + self.fc2(self.op(self.act(self.fc1(self.norm(x)))))


MIXED = [(1, 2), (2, 1), (1.5, 3), (3, 1.5), (0.8, 2.2), (2.2, 0.8), (1, 1), (2.5, 2.5)]
case("mixed_deep", {f"{i}.op": v for i, v in enumerate(MIXED)})(lambda: nn.Sequential(*[Mixed(*v) for v in MIXED]))

BY_NAME = {one.name: one for one in CASES}
_first = BY_NAME["autograd_function"].owners
_users = [tag for tag in _first if not LENGTHS[tag][1]]
BY_NAME["autograd_function"].back_only = {tag + 1: _first[tag][0] for tag in _users}
# One object under two parents: its first call is that of the one, its last call that of the other.
for _paths in BY_NAME["tied_alias"].owners.values():
    if len(_paths) == 2:
        _paths[1] = "dec.shared"
