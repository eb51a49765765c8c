"""Levels of detail: the finest modules go first, the model as a whole stays."""

from __future__ import annotations

from torch import nn

from autoprof._targets import detail_levels, select_targets
from autoprof.config import load_config


def nested() -> nn.Module:
    """Return a model three deep: ``0``, ``1.0``, ``1.1.0``."""
    return nn.Sequential(nn.ReLU(), nn.Sequential(nn.ReLU(), nn.Sequential(nn.ReLU())))


def levels(*rules: dict[str, object]) -> list[list[str]]:
    """Return the fqns of each level for these rules."""
    model = nested()
    details = detail_levels(model, select_targets(model, load_config({"targets": list(rules)})))
    return [[target.fqn for target in detail.targets] for detail in details]


def test_the_deepest_targets_go_first() -> None:
    """Deep is what lies in other targets, not what has a long path."""
    assert levels({"match": ".+"}) == [["0", "1", "1.0", "1.1", "1.1.0"], ["0", "1", "1.0", "1.1"], ["0", "1"], [""]]
    assert levels({"match": r"1\.1\.0|0"}) == [["0", "1.1.0"], [""]]


def test_a_target_that_is_the_model_is_the_last_level() -> None:
    """It is not added once more."""
    assert levels({"match": ".?"}) == [["", "0", "1"], [""]]


def test_one_target_that_is_the_model_has_one_level() -> None:
    """There is nothing to drop."""
    assert levels({"match": ""}) == [[""]]


def test_a_path_that_only_begins_alike_is_not_inside() -> None:
    """``ab.x`` lies in ``ab``, not in ``a``."""
    model = nn.ModuleDict({"a": nn.ReLU(), "ab": nn.Sequential(nn.ReLU())})
    model.forward = lambda x: x  # type: ignore[method-assign]
    details = detail_levels(model, select_targets(model, load_config({"targets": [{"match": "a|ab|ab.0"}]})))
    assert [[target.fqn for target in detail.targets] for detail in details][:2] == [["a", "ab", "ab.0"], ["a", "ab"]]
