"""``vrt_spike.yaml``: the copy that users read, the copy that ships, and the model they are written for."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

import autoprof
from autoprof.sinks import load_config
from examples.demo.model import VRTWithSpike
from examples.demo.presets import PRESETS

SHIPPED = (files("examples.demo") / "vrt_spike.yaml").read_text(encoding="utf-8")


def test_both_copies_have_the_same_content() -> None:
    """What users read in configs/ is what the wheel carries, which has no comments."""
    read = Path(__file__).parents[2] / "configs" / "vrt_spike.yaml"
    assert yaml.safe_load(read.read_text(encoding="utf-8")) == yaml.safe_load(SHIPPED)


def test_the_names_are_those_that_the_users_know() -> None:
    """Stages 1 to 8, the spike encoder and the spike attention with their four scales; each rule matches."""
    content: dict[str, Any] = yaml.safe_load(SHIPPED)
    config = load_config({**content, "sinks": {}})
    with autoprof.instrument(VRTWithSpike(PRESETS["tiny"].model), config) as session:
        names = {target.name for target in session.targets}
    assert session.summary().notes == ()
    assert names >= {f"VRT/Stage{i}" for i in range(1, 9)} | {"SpikeEncoder3D", "SpikeTemporalSA"}
    for i in range(4):
        scale = f"SpikeTemporalSA/Scale{i}"
        assert names >= {f"SpikeEncoder3D/Scale{i}", scale, f"{scale}/Attention", f"{scale}/FFN"}
