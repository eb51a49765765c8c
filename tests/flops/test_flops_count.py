"""The count of a model's work is the one that can be worked out by hand, by module and phase."""

import copy

import pytest
import torch
from flops_models import GPT, Block, ResNet, call_of, counted, self_flops, tokens
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from autoprof.base.frame import Phase
from autoprof.probes.metrics.flops import Kind, count_call

F, B, R = Phase.FORWARD, Phase.BACKWARD, Phase.RECOMPUTE


def test_a_linear_layer_multiplies_and_adds_once_for_each_weight_and_row():
    """2 x rows x inputs x outputs; the first layer has no gradient of its input to compute."""
    count = counted(nn.Linear(5, 7), torch.randn(3, 5))
    assert self_flops(count) == {("", F): 2 * 3 * 5 * 7, ("", B): 2 * 3 * 5 * 7}


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_costs_its_filter_at_every_place_of_its_output(groups, stride):
    """2 x batch x places x filter; with groups, each gradient still costs the forward."""
    model = nn.Conv2d(8, 16, 3, stride, groups=groups)
    x = torch.randn(2, 8, 9, 11, requires_grad=True)
    places = model(x)[0, 0].numel()
    forward = 2 * 2 * places * 16 * (8 // groups) * 9
    assert self_flops(counted(model, x)) == {("", F): forward, ("", B): 2 * forward}


class Masked(nn.Module):
    """A layer behind a mask that is made anew in each forward."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        mask = torch.tril(torch.ones_like(x))
        y = self.layer(x * mask)
        return y.relu()


@pytest.mark.parametrize(("trains", "wanted"), [(True, {1: False, 2: False, 3: True}), (False, {})])
def test_a_line_makes_a_graph_where_a_parameter_takes_part_in_it(trains, wanted):
    """Lines of the forward itself: the product inside of the layer has none. A forward without gradients counts not."""
    first = Masked.forward.__code__.co_firstlineno
    with torch.set_grad_enabled(trains):
        lines = counted(Masked(), torch.randn(4, 4)).lines
    assert {line - first: makes_graph for (_, line), makes_graph in lines.items()} == wanted


def one_hot_rows(numbers):
    """Return them as torch's function makes them."""
    return torch.nn.functional.one_hot(numbers, 50).float()


def rows_of_identity(numbers):
    """Return them from an identity matrix."""
    return torch.eye(50)[numbers]


def scattered(numbers):
    """Return a 1 in each row of zeros."""
    return torch.zeros(len(numbers), 50).scatter_(1, numbers[:, None], 1.0)


def several_ones(numbers):
    """Return two ones in each row, as the neighbours in a graph are."""
    return torch.zeros(len(numbers), 50).scatter_(1, torch.stack([numbers, numbers], 1), 1.0)


def alike(numbers):
    """Return which numbers are equal to which."""
    return (numbers[:, None] == numbers).float()


def scaled(numbers):
    """Return one-hot rows with weights."""
    return one_hot_rows(numbers).mul_(0.5)


class Product(nn.Module):
    """A product of rows with a matrix."""

    def __init__(self, rows, columns):
        super().__init__()
        self.rows, self.table = rows, nn.Parameter(torch.randn(columns, 4))

    def forward(self, numbers):
        return self.rows(numbers) @ self.table


@pytest.mark.parametrize(
    ("rows", "columns", "noted"),
    [
        (one_hot_rows, 50, True),
        (rows_of_identity, 50, True),
        (scattered, 50, True),
        (several_ones, 50, False),
        (alike, 6, False),
        (scaled, 50, False),
    ],
)
def test_a_product_of_one_hot_rows_is_noted_with_its_line(rows, columns, noted):
    """Only of rows with a single 1."""
    first = Product.forward.__code__.co_firstlineno
    found = counted(Product(rows, columns), torch.zeros(6, dtype=torch.long)).one_hot
    assert [(fqn, line - first) for fqn, _, line in found] == ([("", 1)] if noted else [])


class Doubled(torch.autograd.Function):
    """A function of the program, whose operators run without gradients."""

    @staticmethod
    def forward(ctx, x):
        return x * 2 + 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Custom(nn.Module):
    """A layer and a function of the program."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return Doubled.apply(self.layer(x))


def test_the_lines_of_an_autograd_function_are_not_said_to_make_no_graph():
    """Its node is its graph."""
    assert False not in counted(Custom(), torch.randn(4, 4)).lines.values()


def gpt_block(batch: int, time: int, width: int) -> tuple[int, int]:
    """Work out a block's layers (24 B T W^2) and the two products of its attention (4 B T^2 W, as if not causal)."""
    return 24 * batch * time * width**2, 4 * batch * time**2 * width


@pytest.mark.parametrize("layer", ["LSTM", "GRU", "RNN"])
def test_a_recurrent_layer_costs_its_matrices_at_every_time_step(layer):
    """Fused or not: every token meets every matrix of every layer and direction."""
    model = getattr(nn, layer)(4, 8, 2, bidirectional=True)
    matrices = sum(weight.numel() for weight in model.parameters() if weight.ndim == 2)
    assert counted(model, torch.randn(5, 3, 4)).flops(phases=F) == 2 * 5 * 3 * matrices


@pytest.mark.parametrize(
    ("transform", "flops"),
    [
        (lambda x: torch.fft.fft(x.to(torch.complex64)).real, 5.0 * 3 * 64 * 6),
        (lambda x: torch.fft.fft2(x.view(3, 8, 8)).real, 5.0 * 3 * 64 * 6),
        (lambda x: torch.fft.rfft(x).real, 2.5 * 3 * 64 * 6),
        (lambda x: torch.fft.irfft(torch.fft.rfft(x), n=64), 2 * 2.5 * 3 * 64 * 6),
    ],
    ids=["complex", "of two dimensions", "real", "back to real"],
)
def test_a_fourier_transform_costs_n_log_n(transform, flops):
    """Of N points: 5 N log2 N, half of it where they are real."""

    class Spectrum(nn.Module):
        def forward(self, x):
            return transform(x)

    assert counted(Spectrum(), torch.ones(3, 64)).flops(phases=F) == flops


def test_reentrant_checkpointing_recomputes_the_whole_block():
    """The recompute is a phase of its own, by module, and equals the block's forward."""
    count = counted(GPT(again="reentrant"), tokens())
    own = self_flops(count)
    assert count.flops(R) == 2 * sum(gpt_block(2, 8, 16))
    assert own["blocks.0.mlp.2", R] == own["blocks.0.mlp.2", F]
    assert ("head", R) not in own


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_function_belongs_to_the_module_that_calls_it(reentrant):
    """A recompute in which no module is called is still its caller's, its backward too."""

    class Caller(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 4))

        def forward(self, x):
            return checkpoint(lambda y: (y @ self.weight).relu() @ self.weight, x, use_reentrant=reentrant)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.inner, self.last = nn.Linear(4, 4), Caller(), nn.Linear(4, 4)

        def forward(self, x):
            return self.last(self.inner(self.first(x)))

    own = self_flops(counted(Model(), torch.randn(2, 4)))
    assert own[("inner", R)] == (128 if reentrant else 64)
    assert own[("inner", B)] == 4 * 64
    assert own[("first", B)] == 64
    assert own[("last", B)] == 128


def test_a_gradient_that_a_forward_asks_for_is_part_of_the_forward():
    """A force field derives its energy inside its forward; that is no recompute."""

    class Force(nn.Module):
        def __init__(self):
            super().__init__()
            self.energy = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))

        def forward(self, x):
            x = x.detach().requires_grad_()
            return torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)[0]

    count = counted(Force(), torch.randn(5, 3))
    assert count.flops(phases=R) == 0
    assert count.flops(phases=F) == 2 * (2 * 5 * 3 * 8 + 2 * 5 * 8)
    assert count.flops(phases=B) > 0


@pytest.mark.parametrize("make", [GPT, ResNet, lambda: GPT(again="reentrant"), lambda: GPT(again="early stop")])
def test_the_sum_is_what_torch_counts_on_the_real_thing(make):
    """torch's own counter, on a copy that really runs, finds the same; it lacks a formula for attention on the CPU."""
    model = make()
    x = torch.randn(2, 3, 8, 8) if isinstance(model, ResNet) else tokens()
    count = counted(model, x)
    real = copy.deepcopy(model)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), FlopCounterMode(display=False) as torchs:
        real(x).sum().backward()
    fused = [block for block in real.modules() if isinstance(block, Block)]
    scores = sum(gpt_block(2, 8, 16)[1] // 2 for _ in fused)  # the fused backward recomputes them, the plain does not
    assert count.flops() == torchs.get_total_flops() + scores


def test_shared_modules_and_repeated_calls_add_up_under_one_name():
    """A module called twice has done twice the work."""
    layer = nn.Linear(4, 4)
    own = self_flops(counted(nn.Sequential(layer, nn.ReLU(), layer), torch.randn(1, 4)))
    assert own == {("0", F): 64, ("0", B): 32 + 64}


def test_autocast_and_its_absence_are_told_apart_by_kind():
    """The data type of the product selects the peak, not that of the weights."""
    model = nn.Sequential(nn.Conv1d(2, 2, 1), nn.Linear(4, 4))
    x = torch.randn(1, 2, 4)
    plain = counted(model, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = counted(model, x)
    assert set(plain.kinds()) == {Kind("float32", "conv"), Kind("float32", "matmul")}
    assert set(cast.kinds()) == {Kind("bfloat16", "conv"), Kind("bfloat16", "matmul")}
    assert cast.flops() == plain.flops()


def test_a_call_without_gradients_has_no_backward():
    """Neither under no_grad nor where no backward was seen."""
    model = nn.Linear(4, 4)
    with torch.no_grad():
        assert self_flops(counted(model, torch.randn(1, 4))) == {("", F): 32}
    assert self_flops(counted(model, torch.randn(1, 4), backward=False)) == {("", F): 32}


def test_outputs_in_mappings_and_dataclasses_are_followed_backward():
    """A loss and logits in a dictionary, as the language models return them."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x, y=None):
            logits = self.layer(x["ids"])
            return {"loss": (logits - y).square().mean(), "logits": logits}

    count = counted(Model(), {"ids": torch.randn(2, 4)}, y=torch.randn(2, 4))
    assert self_flops(count) == {("layer", F): 64, ("layer", B): 64}


def test_a_compiled_model_is_counted_as_what_was_compiled():
    """The names have no wrapper in them, and nothing is compiled for the count."""
    compiled = nn.Sequential(torch.compile(nn.Linear(4, 4), backend="eager"), nn.Linear(4, 4))
    torch._dynamo.utils.counters.clear()
    assert set(self_flops(counted(compiled, torch.randn(1, 4)))) == {("0", F), ("0", B), ("1", F), ("1", B)}
    assert counted(torch.compile(nn.Linear(4, 4), backend="eager"), torch.randn(1, 4)).flops(F) == 32
    assert not torch._dynamo.utils.counters["frames"]


def test_an_operator_moves_the_bytes_that_it_reads_and_writes():
    """Input and output. A product, whose time its FLOPs explain, and a view move none, a table only the rows read."""
    assert counted(nn.ReLU(), torch.randn(3, 5)).moved["", F] == 4 * 2 * 3 * 5
    assert counted(nn.Linear(5, 7), torch.randn(3, 5)).moved.get(("", F), 0) == 0
    assert counted(nn.Flatten(), torch.randn(3, 5, 2)).moved.get(("", F), 0) == 0
    assert counted(nn.Embedding(1000, 8), torch.zeros(3, dtype=torch.long)).moved["", F] == 4 * 2 * 3 * 8


class Prepares(nn.Module):
    """A module whose own code takes a time before its first operator, and after the last one."""

    now_ns = 0

    def __init__(self, before_ms, after_ms):
        super().__init__()
        self.layer, self.times = nn.Linear(4, 4), (before_ms, after_ms)

    def forward(self, x):
        Prepares.now_ns += round(self.times[0] * 1e6)
        y = self.layer(x)
        Prepares.now_ns += round(self.times[1] * 1e6)
        return y


def python_of(model):
    call = call_of(model, torch.ones(2, 4))
    return {
        fqn: ns / 1e6 for (fqn, _), ns in count_call(model, call, processor_ns=lambda: Prepares.now_ns).python.items()
    }


def test_code_between_operators_is_measured_in_its_module():
    """Where it takes three milliseconds or more; the code of torch, and that around each operator, takes less."""
    assert python_of(nn.Sequential(Prepares(8, 3), Prepares(2.9, 0), nn.Linear(4, 4))) == {"0": 11}


def test_code_between_operators_is_multiplied_with_the_calls():
    layer = Prepares(8, 0)
    assert python_of(nn.Sequential(layer, layer, layer)) == {"0": 24}
