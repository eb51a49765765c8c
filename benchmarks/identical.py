"""The same bits with and without autoprof: outputs, gradients and parameters of the reference workload."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

import autoprof

from .workloads import reference

STEPS: Final = 3


def _train(checkpoint: bool, *, profiled: bool) -> list[Tensor]:
    """Return every output, gradient and parameter of a few steps, and the state of the generator after them."""
    torch.manual_seed(0)
    workload = reference(torch.device("cpu"), "tiny", checkpoint=checkpoint)
    kept: list[Tensor] = []
    watch = workload.model.register_forward_hook(lambda _m, _a, output: kept.append(output.detach().clone()))
    session = None
    if profiled:
        config = {**workload.config, "sinks": {}}
        session = autoprof.instrument(workload.model, config, optimizer=workload.optimizer)
    assert workload.optimizer is not None
    keep = workload.optimizer.register_step_pre_hook(
        lambda *_: kept.extend(p.grad.clone() for p in workload.model.parameters() if p.grad is not None)
    )
    for _ in range(STEPS):
        workload.step()
        if session is not None:
            session.step()
    if session is not None:
        session.close()
    watch.remove()
    keep.remove()
    return [*kept, *(p.detach().clone() for p in workload.model.parameters()), torch.get_rng_state()]


def run() -> dict[str, Any]:
    """Compare bit for bit, checkpointing off and on."""
    results: dict[str, Any] = {}
    for checkpoint in (False, True):
        bare, profiled = _train(checkpoint, profiled=False), _train(checkpoint, profiled=True)
        same = len(bare) == len(profiled) and all(torch.equal(a, b) for a, b in zip(bare, profiled, strict=True))
        results["checkpointing on" if checkpoint else "checkpointing off"] = {"tensors": len(bare), "identical": same}
    return results
