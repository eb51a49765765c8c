"""The models that are measured: 40 tiny layers, the reference workload, a small GPT."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from autoprof.sinks import load_config
from autoprof.targets import select_targets

from .gpt import SmallGPT

TINY_LAYERS: Final = 40
WIDTH: Final = 16
BATCH: Final = 8
CONFIG: Final = Path(__file__).resolve().parent.parent / "configs" / "vrt_spike.yaml"


def _nothing() -> None:
    pass


@dataclass
class Workload:
    """A model and one training step of it. ``config`` is passed to ``autoprof.instrument``, a mapping."""

    name: str
    title: str
    model: nn.Module
    step: Callable[[], object]
    config: dict[str, Any]
    optimizer: torch.optim.Optimizer | None = None
    synchronize: Callable[[], object] = _nothing
    asynchronous: bool = False
    targets: Sequence[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.targets = tuple(select_targets(self.model, load_config(self.config)))

    @property
    def modules(self) -> list[nn.Module]:
        """Return the instrumented modules; ``len`` of them divides a step's extra time."""
        return [target.module for target in self.targets]

    def reset(self) -> None:
        """Take off every hook that a variant left behind when it failed."""
        for module in self.model.modules():
            for hooks in _hook_dicts(module):
                hooks.clear()
            module._is_full_backward_hook = None
        self.model.zero_grad()


def _hook_dicts(module: nn.Module) -> list[dict[int, Any]]:
    return [
        module._forward_pre_hooks,
        module._forward_hooks,
        module._forward_hooks_with_kwargs,
        module._forward_hooks_always_called,
        module._forward_pre_hooks_with_kwargs,
        module._backward_hooks,
        module._backward_pre_hooks,
    ]


def _on(device: torch.device) -> dict[str, Any]:
    if device.type == "cpu":
        return {}
    return {"synchronize": torch.get_device_module(device).synchronize, "asynchronous": True}


def tiny_layers(device: torch.device, size: str = "", *, layers: int = TINY_LAYERS) -> Workload:
    """Return the worst case: layers that take less time than looking at the clock."""
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(layers))).to(device)
    x = torch.randn(BATCH, WIDTH, device=device)

    def step() -> None:
        model(x).sum().backward()

    title = f"{layers} tiny layers: Linear({WIDTH}, {WIDTH}), batch {BATCH}, forward and backward"
    return Workload("layers", title, model, step, {"targets": [{"match": r"\d+"}]}, **_on(device))


def reference_model(size: str, *, checkpoint: bool) -> tuple[nn.Module, tuple[int, ...], tuple[int, ...]]:
    """Return the demo's model, and the shapes of its frames and of its spikes."""
    from examples.demo.model import VRTWithSpike
    from examples.demo.presets import PRESETS

    preset = PRESETS[size]
    shape = replace(preset.model, use_checkpoint_attn=checkpoint, use_checkpoint_ffn=checkpoint)
    frames = (preset.batch, shape.frames, 3, preset.crop, preset.crop)
    return VRTWithSpike(shape), frames, (preset.batch, shape.frames, shape.spike_bins, preset.crop, preset.crop)


def reference(device: torch.device, size: str = "small", *, checkpoint: bool = True) -> Workload:
    """Return the demo's model and step, with the demo's own configuration."""
    import yaml

    from examples.demo.losses import deblurring_loss

    model, frames, spikes = reference_model(size, checkpoint=checkpoint)
    model.to(device)
    rgb, sharp = torch.rand(frames, device=device), torch.rand(frames, device=device)
    spike = torch.rand(spikes, device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        loss = deblurring_loss(model(rgb, spike), sharp)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    config = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    title = f"reference workload: VRTWithSpike, {size}, attention and FFN checkpointed, AdamW"
    return Workload("reference", title, model, step, config, optimizer, **_on(device))


def small_gpt(device: torch.device, size: str = "") -> Workload:
    """Return a small GPT with every submodule instrumented."""
    model = SmallGPT().to(device)
    tokens = torch.randint(0, model.vocabulary, (4, model.context + 1), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        model.loss(tokens).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    # The ModuleList is never called itself; a rule that names it would take its blocks.
    config = {"targets": [{"match": r"(?!blocks$).+"}]}
    title = f"small GPT: {model.layers} layers of width {model.width}, every submodule, AdamW"
    return Workload("gpt", title, model, step, config, optimizer, **_on(device))


BUILDERS: Final[Mapping[str, Callable[[torch.device, str], Workload]]] = {
    "layers": tiny_layers,
    "reference": reference,
    "gpt": small_gpt,
}


def with_phases(config: Mapping[str, Any], phases: Sequence[str] | None, **changes: Any) -> dict[str, Any]:
    """Return the configuration with these phases for every rule, no budget, no warm-up, and ``changes``."""
    changed = deepcopy(dict(config))
    if phases is not None:
        for rule in changed["targets"]:
            rule["phases"] = list(phases)
    return {**changed, "sample": {"every": 1, "warmup": 0, "budget": None}, "step": "manual", **changes}
