"""A call that is not countable gives no figure but a reason."""

import copy
import warnings

import pytest
import torch
from flops_models import counted, refused
from torch import nn
from torch.utils.flop_counter import flop_registry, register_flop_formula

from autoprof.base.frame import Phase


class Does(nn.Module):
    """A layer, then whatever the test wants."""

    def __init__(self, then):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.then = then

    def forward(self, x):
        return self.then(self.layer(x))


@pytest.mark.parametrize(
    ("then", "why"),
    [
        (lambda y: y if y.sum() > 0 else -y, "its work depends on values: aten._local_scalar_dense"),
        (lambda y: y[y > 0], "a shape depends on values: aten.nonzero"),
        (lambda y: y + float(y.max().item()), "its work depends on values: aten._local_scalar_dense"),
        (lambda y: torch.linalg.svd(y)[1], "no formula for aten._linalg_svd"),
        (lambda y: torch.cdist(y, y), "aten._cdist_forward (1 times)"),
        (lambda y: (y.to(torch.complex64) @ torch.ones(4, 4, dtype=torch.complex64)).real, "of complex numbers"),
    ],
)
def test_work_that_cannot_be_known_gives_no_figure(then, why):
    """Values that decide, operators without a formula, complex products."""
    assert why in refused(Does(then), torch.randn(4, 4))


@torch.library.custom_op("autoprof_test::product", mutates_args=())
def product(x: torch.Tensor) -> torch.Tensor:
    """Multiply a matrix by itself, in a way that only its author knows."""
    return x @ x


@product.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_a_custom_operator_needs_a_formula():
    """An unknown operator has no figure; with a formula registered with torch it counts."""
    model = Does(lambda y: product(y.detach()) + y)
    assert refused(model, torch.randn(4, 4)) == "no formula for autoprof_test.product (1 times)"
    register_flop_formula(torch.ops.autoprof_test.product)(lambda shape, *_, out_shape=None, **__: 2 * shape[0] ** 3)
    try:
        assert counted(model, torch.randn(4, 4)).flops(Phase.FORWARD) == 128 + 128
    finally:
        for key in [key for key in flop_registry if "autoprof_test" in str(key)]:  # torch 2.4 has the overload's
            del flop_registry[key]


def test_a_scripted_module_is_refused():
    """Its operators are not visible to a dispatch mode."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch would have people export
        scripted = torch.jit.trace(nn.Linear(4, 4), torch.randn(1, 4))
    assert refused(nn.Sequential(scripted), torch.randn(1, 4)) == "'0' is scripted or traced"


def test_a_model_that_cannot_be_copied_is_refused():
    """A lock, an open file: the copy would not be one."""
    model = nn.Linear(4, 4)
    model.stream = (part for part in ())
    with pytest.raises(TypeError):
        copy.deepcopy(model)
    assert refused(model, torch.randn(1, 4)).startswith("deep-copying the model failed: TypeError")


def test_an_error_of_the_forward_is_the_reason(capfd, caplog):
    """Its first line; torch's own report of it, a page of traceback, is not written into the user's output."""
    reason = refused(nn.Sequential(nn.Linear(4, 4)), torch.randn(1, 5))
    assert reason.startswith("RuntimeError: a and b must have same reduction dim")
    assert reason.endswith("in '0'")
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
