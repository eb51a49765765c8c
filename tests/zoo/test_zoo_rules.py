"""The rules that autoprof writes for each model of the zoo select exactly the modules they were written for."""

import gc
from collections.abc import Iterable, Iterator

import pytest
from torch import nn
from zoo_case import Case
from zoo_registry import chosen_cases

import autoprof
from autoprof._targets import CutGroup, CutRules, ModuleGroup, first_cut, group_tree, select_targets
from autoprof.sinks import Config, load_config, parse_config

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.filterwarnings("error:::autoprof")]


@pytest.fixture(scope="module", autouse=True)
def collect() -> Iterator[None]:
    """Free the models, which hold themselves in circles."""
    yield
    gc.collect()


@pytest.mark.parametrize("case", chosen_cases(), ids=str)
def test_the_rules_reproduce_the_groups(case: Case) -> None:
    """Every group at once, through YAML; and the suggestion of ``suggest_targets``."""
    model = case.build().model
    tree = group_tree(model)
    groups = [group for group in tree.below() if group.nodes[0].called]
    text = CutRules(model).yaml([CutGroup(group) for group in groups])
    assert _selected(model, parse_config(text)) == _targets(groups)
    assert _selected(model, load_config(autoprof.suggest_targets(model))) == _targets(first_cut(tree))


def _targets(groups: Iterable[ModuleGroup]) -> list[tuple[str, str]]:
    return sorted((target.fqn, target.name) for group in groups for target in group.targets())


def _selected(model: nn.Module, config: Config) -> list[tuple[str, str]]:
    return sorted((target.fqn, target.name) for target in select_targets(model, config))
