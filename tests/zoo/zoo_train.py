"""Train a subject and write down, to the last bit, all that training made."""

from collections.abc import Callable
from itertools import groupby
from typing import Any, Final

import torch
from bits import bits, describe, random_states, tensors_in
from torch import Tensor, nn
from zoo_case import Subject

STEPS: Final = 2
Record = list[tuple[str, Any]]


def nothing() -> None:
    """Do nothing."""


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer | None:
    """Return an optimizer with a state over what can be trained, or None."""
    parameters = [p for p in model.parameters() if p.requires_grad and (p.is_floating_point() or p.is_complex())]
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9) if parameters else None


def call(subject: Subject, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the model the way the case wants."""
    if subject.around is not None:
        return subject.around(subject.model, args, kwargs)
    return subject.model(*args, **kwargs)


def one_step(subject: Subject, optimizer: torch.optim.Optimizer | None, record: Record | None = None) -> None:
    """Run forward, backward and the optimizer once; outputs and gradients go to ``record`` where there is one."""
    args, kwargs = subject.draw()
    leaves = [t for t in tensors_in((args, kwargs)) if t.is_leaf and t.requires_grad]
    output = call(subject, args, kwargs)
    if record is not None:
        record.append(("output", describe(output)))
    loss = subject.loss(output)
    if loss is not None and loss.requires_grad:
        if subject.backward is None:
            loss.backward()
        else:
            subject.backward(loss, subject.model)
    if record is not None:
        record.append(("loss", None if loss is None else bits(loss)))
        record.extend(("gradient of an input", None if leaf.grad is None else bits(leaf.grad)) for leaf in leaves)
        named = subject.model.named_parameters()
        record.extend((f"gradient of {name}", None if p.grad is None else bits(p.grad)) for name, p in named)
    if optimizer is not None:
        optimizer.step()
        optimizer.zero_grad()


def train(subject: Subject, steps: int = STEPS, end_step: Callable[[], None] = nothing) -> Record:
    """Train and return outputs, losses, gradients, parameters, buffers and the generators' states, by name."""
    record: Record = []
    optimizer = make_optimizer(subject.model)
    for _ in range(steps):
        one_step(subject, optimizer, record)
        end_step()
    values: list[tuple[str, Tensor]] = [*subject.model.named_parameters(), *subject.model.named_buffers()]
    record.extend((f"value of {name}", bits(value)) for name, value in values)
    record.append(("generators", random_states()))
    return record


def allocations(subject: Subject, end_step: Callable[[], None] = nothing) -> list[int]:
    """Return the bytes of every allocation (positive) and release (negative) of tensor memory of a step, in order.

    The step is the third: buffers of the optimizer and of autograd are there. From the order follow the peak and what
    is still held at the end; two runs that hold the same tensors for the same time have the same list. What is released
    together is sorted: autocast empties its cache in no order of its own.
    """
    optimizer = make_optimizer(subject.model)
    for _ in range(STEPS):
        one_step(subject, optimizer)
        end_step()
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        one_step(subject, optimizer)
        end_step()
    sizes = _sizes(profile.kineto_results.experimental_event_tree())
    runs = groupby(sizes, key=lambda size: size < 0)
    return [size for freed, run in runs for size in (sorted(run) if freed else run)]


def _sizes(tree: list[Any]) -> list[int]:
    """Return the allocations, and their releases, of a profile; a release of what was there before is left out.

    Of a block that was there before the profiler knows no size, or that of another block at the same address.
    """
    found = []
    while tree:
        event = tree.pop()
        tree.extend(event.children)
        if event.typed[0] == torch._C._profiler._EventType.Allocation:
            found.append((event.start_time_ns, event.typed[1].ptr, event.typed[1].alloc_size))
    live: set[int] = set()
    sizes = []
    for _, address, size in sorted(found):
        if size > 0:
            live.add(address)
        elif address in live:
            live.remove(address)
        else:
            continue
        sizes.append(size)
    return sizes
