"""What an optimizer really is: its kind, how it updates, what its state holds, and which forms of it there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from torch import Tensor

from .._capture.memory import bytes_of, extents
from .._units import format_bytes
from .evidence import OptimizerFact

EIGHT_BIT: Final = ("Adam", "AdamW", "SGD", "Adagrad", "RMSprop")
"""Optimizers of torch that ``bitsandbytes.optim`` has in 8 bits, with ``8bit`` behind the name."""
FUSED: Final = ("Adam", "AdamW", "SGD", "Adagrad")
"""Those that torch has a fused form of."""
LEAST: Final = 4096
"""State of fewer values stays in 32 bits (bitsandbytes, ``min_8bit_size``)."""
BLOCK: Final = 256
"""Values that share one float32 scale (Dettmers et al. 2021, arXiv:2110.02861, have 2048; later versions 256)."""
TORCH: Final = "torch"


def describe_optimizers(optimizers: Iterable[Any]) -> tuple[OptimizerFact, ...]:
    """Say what these optimizers are and how much state they hold. Sizes only: no value is read, nothing waits."""
    return tuple(map(_describe, optimizers))


def _describe(optimizer: Any) -> OptimizerFact:
    groups = list(optimizer.param_groups)
    held = list(optimizer.state.values())
    tensors = [tensor for one in held for tensor in _tensors(one)]
    words = Counter[int]()
    for tensor in tensors:
        words[tensor.element_size()] += tensor.nelement()
    parameters = [one for group in groups for one in group["params"]]
    places = Counter[str]()
    for one in parameters:
        places[one.device.type] += one.nelement()
    return OptimizerFact(
        kind=type(optimizer).__name__,
        fused=_setting(groups, "fused"),
        foreach=_setting(groups, "foreach"),
        parameter_bytes=bytes_of(extents(parameters)),
        state_bytes=bytes_of(extents(held)),
        state_word_bytes=words.most_common(1)[0][0] if words else 4,
        origin=type(optimizer).__module__.partition(".")[0],
        can_fuse="fused" in optimizer.defaults,
        device=places.most_common(1)[0][0] if places else "cpu",
        eight_bit_bytes=bytes_of(extents(held)) - sum(map(_freed, tensors)),
    )


def _tensors(held: Any) -> Iterator[Tensor]:
    """Yield the tensors of a parameter's state that are values of the parameter, not its count of steps."""
    for value in held.values() if isinstance(held, dict) else ():
        if isinstance(value, Tensor) and value.dim():
            yield value


def _freed(tensor: Tensor) -> int:
    count = tensor.nelement()
    if count < LEAST or not tensor.is_floating_point():
        return 0
    return max(bytes_of(extents(tensor)) - count - 4 * -(-count // BLOCK), 0)


def _setting(groups: list[dict[str, Any]], name: str) -> bool | None:
    values = {group.get(name) for group in groups}
    return bool(values.pop()) if len(values) == 1 and None not in values else None


def has_eight_bits(fact: OptimizerFact) -> bool:
    """Tell whether there is an 8-bit form of this optimizer that holds less."""
    return (
        fact.origin == TORCH
        and fact.kind in EIGHT_BIT
        and fact.eight_bit_bytes is not None
        and fact.eight_bit_bytes < fact.state_bytes
    )


def offloaded(fact: OptimizerFact, device: str) -> bool:
    """Tell whether an optimizer updates on the CPU what a model on a device computes with (ZeRO's offload, FSDP's)."""
    return fact.device == "cpu" and device not in ("", "cpu")


def faster(facts: Sequence[OptimizerFact]) -> str:
    """Name the form of these optimizers that updates faster; what there is none of is not promised."""
    more = "a larger batch or accumulated gradients mean fewer optimizer steps a sample"
    said = dict.fromkeys(_faster(fact) for fact in facts)
    return "; ".join([*(said or {"fused=True (AdamW, Adam, SGD) updates all parameters in one go": None}), more])


def _faster(fact: OptimizerFact) -> str:
    if fact.fused:
        return "it is fused already"
    if fact.origin != TORCH:
        return f"{fact.kind} is not torch's own: see whether {fact.origin} has a fused or foreach form of it"
    fuses = fact.kind in FUSED if fact.can_fuse is None else fact.can_fuse
    if fact.foreach is False:
        other = (
            "take fused=True, or drop foreach=False"
            if fuses
            else f"drop foreach=False, as {fact.kind} has no fused form"
        )
        return f"foreach=False updates parameter by parameter: {other}"
    if fuses:
        where = "; on the CPU torch takes neither by itself" if fact.device == "cpu" and fact.foreach is None else ""
        return f"fused=True updates all parameters of {fact.kind} in one go{where}"
    if fact.device == "cpu" and fact.foreach is None:
        return f"{fact.kind} has no fused form; foreach=True, off on the CPU, updates its parameters together"
    return f"{fact.kind} has no fused form"


def smaller(facts: Sequence[OptimizerFact]) -> str:
    """Name the 8-bit forms of these optimizers and what they would hold."""
    named = [
        f"bitsandbytes.optim.{fact.kind}8bit holds {format_bytes(fact.eight_bit_bytes or 0)} for "
        f"{format_bytes(fact.state_bytes)}"
        for fact in facts
        if has_eight_bits(fact)
    ]
    return "; ".join(named)
