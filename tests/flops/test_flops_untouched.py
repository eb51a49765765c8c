"""A count leaves no trace: not in the model, not in its gradients, not in any generator, not in the user's own data."""

import gc
import random
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from flops_models import GPT, ResNet, call_of, counted, refused, self_flops, tokens
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional

from autoprof.base.frame import Phase
from autoprof.probes.metrics.flops import count_call


def bits(model: nn.Module) -> list[bytes]:
    """Return every parameter, buffer and gradient to the last bit."""
    held = [*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters() if p.grad is not None)]
    return [tensor.detach().numpy().tobytes() for tensor in held]


@pytest.fixture
def no_fakes() -> Callable[[], bool]:
    """Tell whether no fake tensor is alive but those that others (a compiler) made before."""
    before = [one for one in gc.get_objects() if type(one) is FakeTensor]

    def none_made() -> bool:
        gc.collect()
        fakes = [one for one in gc.get_objects() if type(one) is FakeTensor]
        return all(any(one is other for other in before) for one in fakes)

    return none_made


@pytest.mark.parametrize("make", [ResNet, GPT, lambda: GPT(again="reentrant"), lambda: GPT(again="early stop")])
def test_parameters_buffers_and_gradients_keep_their_bits_and_identities(make):
    """The statistics of batch norm too, and the versions by which autograd knows of changes."""
    model = make()
    x = torch.randn(2, 3, 8, 8) if isinstance(model, ResNet) else tokens()
    model(x).sum().backward()
    tensors = [*model.parameters(), *model.buffers()]
    before, versions, ids = bits(model), [t._version for t in tensors], [id(p.grad) for p in model.parameters()]
    counted(model, x)
    assert bits(model) == before
    assert [t._version for t in tensors] == versions
    assert [id(p.grad) for p in model.parameters()] == ids


def test_every_generator_is_put_back():
    """Dropout draws on torch's; a forward in Python may draw on the others."""

    class Drops(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return functional.dropout(self.layer(x), random.random() * np.random.rand())

    model = Drops()
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    counted(model, torch.randn(2, 4))
    random.setstate(states[1])
    torch.set_rng_state(states[0])
    counted(model, x := torch.ones(2, 4))
    assert x.sum() == 8
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.random.get_state()[1].tolist() == states[2]


def test_hooks_are_neither_run_nor_changed():
    """A user's hook would keep fake tensors; it stays with the real model, and the figure says that it was left out."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    kept = []
    model[0].register_forward_hook(lambda module, args, output: kept.append(output))
    model[1].register_full_backward_hook(lambda module, grads, outputs: kept.append(grads))
    hooks = [dict(m._forward_hooks) for m in model], [dict(m._backward_hooks) for m in model]
    count = counted(model, torch.randn(1, 4))
    assert kept == []
    assert ([dict(m._forward_hooks) for m in model], [dict(m._backward_hooks) for m in model]) == hooks
    assert count.notes == ("without the FLOPs of hooks on '0', '1'",)


def test_the_modes_that_the_caller_is_in_stay_what_they_were():
    """Training, gradients, autocast and its cache are the caller's."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
    model[1].eval()
    call = call_of(model, torch.randn(1, 4))
    model.eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert count_call(model, call).flops() == 64
        assert not torch.is_grad_enabled()
        assert torch.is_autocast_enabled("cpu")
    assert [m.training for m in model.modules()] == [False, False, False]


def test_nothing_fake_stays_alive(no_fakes):
    """Neither after a count nor after one that failed in the middle."""

    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            raise ValueError(f"no {self.layer(x).shape}")

    counted(GPT(again="early stop"), tokens())
    assert refused(Fails(), torch.randn(1, 4)) == "ValueError: no torch.Size([1, 4])"
    assert no_fakes()


def test_a_tensor_from_outside_is_not_changed_in_place():
    """A running mean in a global variable is unchanged, and there is no figure."""
    mean = torch.zeros(4)

    class Counts(nn.Linear):
        def forward(self, x):
            mean.add_(x.detach().mean(0))
            return super().forward(x)

    reason = refused(Counts(4, 4), torch.randn(2, 4))
    assert reason == "aten.add_ would change a tensor of shape (4,) from outside the model"
    assert mean._version == 0


def test_a_forward_that_was_replaced_by_a_closure_is_not_run():
    """It would run the real modules, hooks and all, on fake tensors."""
    model, ran = nn.Linear(4, 4), []
    forward = model.forward
    model.register_forward_pre_hook(lambda module, args: ran.append(args))
    model.forward = lambda x: forward(x)
    assert "was replaced by a closure" in refused(model, torch.randn(1, 4))
    assert ran == []


def test_hooks_on_all_modules_of_the_process_see_nothing():
    """Those cannot be left out of a copy."""
    seen = []
    handle = nn.modules.module.register_module_forward_hook(lambda *args: seen.append(args))
    try:
        assert "global module hooks are registered" in refused(nn.Linear(4, 4), torch.ones(1, 4))
    finally:
        handle.remove()
    assert seen == []


@pytest.fixture
def alone():
    """A process group of one rank."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_no_rank_waits_for_a_count(alone):
    """A forward that talks to other ranks is refused before it does: the others would not answer."""

    class Talks(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            torch.distributed.all_reduce(total := y.detach().sum())
            return y / total

    assert "waits for other ranks" in refused(Talks(4, 4), torch.randn(1, 4))


def test_a_distributed_model_is_counted_as_the_model_inside(alone):
    """The wrapper is left out, of the names and of the work."""
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    assert set(self_flops(counted(model, torch.randn(2, 4)))) == {("0", Phase.FORWARD), ("0", Phase.BACKWARD)}


class _Cell(nn.Module):
    """A recurrent cell over five time steps."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 8)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(len(x), 8)
        for at in range(x.shape[1]):
            state = torch.tanh(self.layer(torch.cat([x[:, at], state], 1)))
        return state


def test_anomaly_detection_of_the_program_is_no_part_of_a_count() -> None:
    """It looks at values, which the copy has not, and would print where the copy was called; the switch stays on."""
    with warnings.catch_warnings(record=True) as printed, torch.autograd.set_detect_anomaly(True):
        assert counted(_Cell(), torch.ones(2, 5, 4)).rows
        assert torch.is_anomaly_enabled()
    assert [one for one in printed if "Error detected" in str(one.message)] == []
