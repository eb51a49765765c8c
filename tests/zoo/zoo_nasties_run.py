"""Models and loops made to trip a profiler, one trap each: how they are run."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from zoo_case import normal, subject, total
from zoo_nasties import Apply, chain, linear, nasty


class Checkpointed(nn.Module):
    """Blocks with dropout and a buffer, recomputed in backward, in one form or both in one another."""

    def __init__(self, outer: bool, inner: bool | None) -> None:
        super().__init__()
        self.outer, self.inner = outer, inner
        self.first = linear()
        self.blocks = nn.ModuleList(
            nn.Sequential(linear(), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.GELU()) for _ in range(2)
        )
        self.norm = nn.LayerNorm(4)

    def _block(self, block: nn.Module, x: Tensor) -> Tensor:
        if self.inner is None:
            return block(x)
        return self.norm(checkpoint(block, x, use_reentrant=self.inner))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(partial(self._block, block), x, use_reentrant=self.outer)
        return x


class Autocast(nn.Module):
    """Compute in bfloat16 where autocast says so, in float32 inside an island."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.norm = linear(), linear(), nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.norm(self.a(x))
            with torch.autocast("cpu", enabled=False):
                x = self.b(x.float())
        return x


def _two_losses(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    y = model(*args)
    y.pow(2).mean().backward(retain_graph=True)
    return y.abs()


def _retain(loss: Tensor, model: nn.Module) -> None:
    loss.backward(retain_graph=True)
    loss.backward(retain_graph=True)
    loss.backward()


def _penalty(loss: Tensor, model: nn.Module) -> None:
    parameters = [p for p in model.parameters() if p.requires_grad]
    grads = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
    (loss + sum((grad.pow(2).sum() for grad in grads if grad is not None), torch.zeros(()))).backward()


def _some_inputs(loss: Tensor, model: nn.Module) -> None:
    loss.backward(inputs=[next(model.parameters())])


def _accumulate(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    outputs = [model(args[0] * scale) for scale in (1.0, 2.0, 3.0)]
    for at in (1, 2):
        outputs[at].pow(2).mean().backward()
    return outputs[0]


def _functional(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    parameters = {name: p * 1.5 for name, p in model.named_parameters()}
    return torch.func.functional_call(model, parameters, args)


def _func_grad(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(model, parameters, (x,)).pow(2).mean()

    return torch.func.grad(loss)(parameters, args[0])


def _per_sample(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(model, parameters, (x[None],)).pow(2).mean()

    return torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, args[0])


def _vmap(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return torch.func.vmap(model)(args[0])


def _jacobian(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return torch.func.jacrev(model)(args[0])


def _forward_mode(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return torch.func.jvp(model, (args[0],), (torch.ones_like(args[0]),))


class Broken(Exception):
    """The user's own error."""


class Breaks(nn.Module):
    """Raise in the middle, after a child has run."""

    def __init__(self) -> None:
        super().__init__()
        self.a = linear()

    def forward(self, x: Tensor) -> Tensor:
        self.a(x)
        raise Broken("in the middle")


class Catches(nn.Module):
    """Catch what a child raises, and go on without it."""

    def __init__(self) -> None:
        super().__init__()
        self.broken, self.b = Breaks(), linear()

    def forward(self, x: Tensor) -> Tensor:
        try:
            return self.broken(x)
        except Broken as error:
            return self.b(x) * len(error.args)


def _broken_backward(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    y = model(*args)

    def raise_(_grads: Any) -> None:
        raise Broken("in backward")

    handle = y.grad_fn.register_prehook(raise_)
    try:
        y.sum().backward(retain_graph=True)
    except Broken:
        handle.remove()
    return model(*args)


def _broken_forward(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return model(*args)
    except Broken as error:
        return str(error)


class OwnFunction(torch.autograd.Function):
    """Return a view and a changed argument from a Function of the user's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x)
        return x * 2, x.detach().sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _sum: Tensor) -> Tensor:
        return grad * 2


class ManyHooks(nn.Module):
    """Have hooks of the user's of every kind, some of which change what passes by."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = linear(), linear()
        self.seen: list[str] = []
        self.a.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
        self.a.register_forward_hook(lambda m, args, output: output + 1)
        self.a.register_forward_pre_hook(lambda m, args, kwargs: (args, kwargs), with_kwargs=True)
        self.b.register_full_backward_pre_hook(lambda m, grad: (grad[0] * 2,))
        self.b.register_full_backward_hook(lambda m, taken, given: self.seen.append("b"))
        self.b.register_forward_hook(lambda m, args, output: self.seen.append("forward b"), always_call=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.b(torch.tanh(self.a(x)))
        y.register_hook(lambda grad: grad * 3)
        return y


def _grad_in_forward(layer: nn.Module, x: Tensor) -> Tensor:
    with torch.enable_grad():
        inner = x.detach().requires_grad_()
        (grad,) = torch.autograd.grad(layer(inner).pow(2).sum(), inner, create_graph=True)
    return x + grad


def _no_grad_part(a: nn.Module, b: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        x = a(x)
    with torch.inference_mode():
        b(x)
    return b(x)


def small(*functions: Any) -> nn.Module:
    """Return a small model with a random part and an in-place part."""
    return chain(linear(), nn.Dropout(0.2), nn.ReLU(inplace=True), linear(), *functions)


def smooth() -> nn.Module:
    """Return a small model that can be differentiated twice, and mapped over."""
    return chain(linear(), nn.Tanh(), linear())


for _outer in (False, True):
    for _inner in (None, False, True):
        _form = {None: "", False: ", non-reentrant inside", True: ", reentrant inside"}[_inner]
        nasty(
            f"checkpoint, {'reentrant' if _outer else 'non-reentrant'}{_form}",
            lambda outer=_outer, inner=_inner: subject(Checkpointed(outer, inner), normal(3, 4)),
        )
    nasty(
        f"checkpoint_sequential, {'reentrant' if _outer else 'non-reentrant'}",
        lambda outer=_outer: subject(
            small(), normal(3, 4, grad=True),
            around=lambda m, args, kw: checkpoint_sequential(m, 2, args[0], use_reentrant=outer),
        ),
    )  # fmt: skip
nasty("autocast to bfloat16", lambda: subject(Autocast(), normal(3, 4)))
nasty("two losses, one graph", lambda: subject(small(), normal(3, 4), around=_two_losses))
nasty("backward three times", lambda: subject(small(), normal(3, 4), backward=_retain))
nasty("double backward", lambda: subject(smooth(), normal(3, 4, grad=True), backward=_penalty))
nasty("backward of one parameter only", lambda: subject(smooth(), normal(3, 4), backward=_some_inputs))
nasty("accumulation out of order", lambda: subject(small(), normal(3, 4), around=_accumulate))
nasty("autograd.grad in forward", lambda: subject(Apply(_grad_in_forward, smooth()), normal(3, 4)))
nasty("no_grad and inference_mode inside", lambda: subject(Apply(_no_grad_part, linear(), linear()), normal(3, 4)))
nasty("functional_call", lambda: subject(smooth(), normal(3, 4), around=_functional))
nasty("torch.func.grad", lambda: subject(smooth(), normal(3, 4), around=_func_grad))
nasty("vmap", lambda: subject(smooth(), normal(3, 4), around=_vmap))
nasty("vmap of grad", lambda: subject(smooth(), normal(3, 4), around=_per_sample))
nasty("jacrev", lambda: subject(smooth(), normal(4), around=_jacobian))
nasty("jvp", lambda: subject(smooth(), normal(3, 4), around=_forward_mode))
nasty("exception in forward, caught by the parent", lambda: subject(Catches(), normal(3, 4)))
nasty("exception in forward, caught outside", lambda: subject(Breaks(), normal(3, 4), around=_broken_forward))
nasty("exception in backward", lambda: subject(smooth(), normal(3, 4), around=_broken_backward))
nasty("a Function of the user's", lambda: subject(chain(linear(), lambda x: OwnFunction.apply(x)[0]), normal(3, 4)))
nasty("hooks of the user's that change things", lambda: subject(ManyHooks(), normal(3, 4)))
nasty("detached in the middle", lambda: subject(chain(linear(), torch.detach, linear()), normal(3, 4)))
nasty("loss on an intermediate output too", lambda: subject(
    Apply(lambda a, b, x: (a(x), b(a(x))), linear(), linear()), normal(3, 4), loss=total))  # fmt: skip
nasty(
    "hooks on tensors that are saved",
    lambda: subject(small(), normal(3, 4), around=lambda m, args, kw: _packed(m, *args)),
)


def _packed(model: nn.Module, x: Tensor) -> Tensor:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(force=True), torch.from_numpy):
        return model(x)
