"""``vrt_spike.yaml``: the copy that users read, the copy that ships, and the model they are written for."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

import autoprof
from autoprof.demo.model import VRTWithSpike
from autoprof.demo.presets import PRESETS
from autoprof.sinks import load_config

SHIPPED = (files("autoprof.demo") / "vrt_spike.yaml").read_text(encoding="utf-8")
CONFIG: dict[str, Any] = yaml.safe_load(SHIPPED)
MODULES = list(VRTWithSpike(PRESETS["tiny"].model).named_modules())


def names() -> dict[str, str]:
    """Name every module as the rules do: the first that matches wins."""
    found: dict[str, str] = {}
    for fqn, module in MODULES:
        for rule in CONFIG["targets"]:
            match = re.fullmatch(rule.get("match", ".*"), fqn)
            if match and re.fullmatch(rule.get("type", ".*"), type(module).__name__):
                found[fqn] = match.expand(rule["name"])
                break
    return found


def test_both_copies_are_the_same() -> None:
    """What users read in configs/ is what the wheel carries."""
    read = Path(__file__).parents[2] / "configs" / "vrt_spike.yaml"
    assert read.read_text(encoding="utf-8") == SHIPPED


@pytest.mark.parametrize("rule", CONFIG["targets"], ids=lambda rule: rule["name"])
def test_every_rule_matches_a_module(rule: dict[str, Any]) -> None:
    """Each pattern matches the whole fqn, or the whole class name, of at least one module."""
    assert any(
        re.fullmatch(rule.get("match", ".*"), fqn) and re.fullmatch(rule.get("type", ".*"), type(module).__name__)
        for fqn, module in MODULES
    )


def test_the_names_are_those_that_the_users_know() -> None:
    """Stages 1 to 8, the spike encoder and the spike attention with their four scales."""
    expected = {f"stage{i}": f"VRT/Stage{i}" for i in range(1, 9)}
    expected |= {"spike_encoder": "SpikeEncoder3D", "spike_attention": "SpikeTemporalSA"}
    for i in range(4):
        expected |= {
            f"spike_encoder.scales.{i}": f"SpikeEncoder3D/Scale{i}",
            f"spike_attention.scales.{i}": f"SpikeTemporalSA/Scale{i}",
            f"spike_attention.scales.{i}.attention": f"SpikeTemporalSA/Scale{i}/Attention",
            f"spike_attention.scales.{i}.ffn": f"SpikeTemporalSA/Scale{i}/FFN",
        }
    assert expected.items() <= names().items()


def test_the_engine_accepts_it() -> None:
    """The configuration is valid, and a session opens on the model and closes again."""
    config = load_config({**CONFIG, "sinks": {}})
    with autoprof.instrument(VRTWithSpike(PRESETS["tiny"].model), config) as session:
        pass
    assert session.summary().notes == ()
