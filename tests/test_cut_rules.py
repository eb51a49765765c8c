"""The rules of a cut select exactly its modules under the same names, as a mapping and as YAML."""

import pytest
import torch
import yaml
from torch import nn

import autoprof
from autoprof.sinks import load_config, parse_config
from autoprof.targets import CutGroup, CutRules, first_cut, group_tree, select_targets


def block(width=4):
    """Return a block with two layers under names."""
    return nn.Sequential(nn.Linear(width, width), nn.TransformerEncoderLayer(width, 2, 8))


class Model(nn.Module):
    """A model of many kinds: repeated, unlike, shared, in dictionaries, with odd names."""

    def __init__(self):
        super().__init__()
        table = nn.Embedding(3, 4)
        self.table = nn.Sequential(table)
        self.h = nn.ModuleList([block(), *(block(8) for _ in range(11))])
        self.half = nn.ModuleList(block(4 if number % 2 else 8) for number in range(9))
        self.experts = nn.ModuleDict({f"expert_{number}": nn.Linear(2, 2) for number in range(3)})
        self.stages = nn.ModuleList(nn.Sequential(block(), block()) for _ in range(2))
        self.stages2 = nn.ModuleList(nn.Sequential(table, nn.Tanh()) for _ in range(2))
        self.odd = nn.ModuleDict({"it's": nn.Tanh(), "a\nb": nn.Tanh(), "c\\d/e": nn.Tanh(), "x*": nn.ModuleList()})

    def forward(self, x):
        return x


MODELS = {
    "of many kinds": Model,
    "without modules": lambda: nn.Linear(1, 1),
    "a transformer": lambda: nn.Transformer(4, 2, 2, 3, 8, batch_first=True),
    "wrapped": lambda: nn.DataParallel(Model()),
    "with compiled blocks": lambda: nn.ModuleList([torch.compile(block(), backend="eager") for _ in range(3)]),
    "with experts in experts": lambda: nn.ModuleList(nn.ModuleList([nn.Tanh(), nn.Tanh()]) for _ in range(3)),
}


def expected(groups):
    """Return fqn and name of each target of these groups."""
    return sorted((target.fqn, target.name) for group in groups for target in group.targets())


def selected(model, config):
    """Return fqn and name of each target of the configuration."""
    return sorted((target.fqn, target.name) for target in select_targets(model, config))


@pytest.mark.parametrize("name", MODELS)
class TestEveryGroup:
    """The rules reproduce every group of the tree at once, and each group alone."""

    def test_all_groups(self, name):
        """Through YAML, as a file would be read."""
        model = MODELS[name]()
        groups = list(group_tree(model).below())
        groups = [group for group in groups if group.nodes[0].called]
        text = CutRules(model).yaml([CutGroup(group, 0.25, "a leaf") for group in groups])
        assert selected(model, parse_config(text)) == expected(groups)

    def test_the_suggestion(self, name):
        """It is a configuration, and goes through YAML unchanged."""
        model = MODELS[name]()
        suggestion = autoprof.suggest_targets(model)
        assert selected(model, load_config(suggestion)) == expected(first_cut(group_tree(model)))
        assert yaml.safe_load(yaml.safe_dump(suggestion)) == suggestion


class TestPatterns:
    """The patterns read as a person would write them."""

    def match(self, name):
        """Return the pattern of the group."""
        model = Model()
        group = next(group for group in group_tree(model).below() if group.name == name)
        return CutRules(model).mapping([group])["targets"][0]

    def test_all_blocks(self):
        """Any number."""
        assert self.match("stages.*/*/0") == {"match": r"stages\.\d+\.\d+\.0", "name": "stages.*/*/0"}

    def test_a_single_module_needs_no_name(self):
        """Its default name is the same."""
        assert self.match("h.0/0") == {"match": r"h\.0\.0", "name": "h.0/0"}
        assert self.match("table") == {"match": "table"}


def test_modules_that_the_program_has_replaced_are_in_no_rule():
    """The rules of a run in which a child was replaced select what the model has at its end."""
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 4))
    groups = [CutGroup(group) for group in group_tree(model).below()]
    model[0] = nn.Linear(4, 4)
    config = parse_config(CutRules(model).yaml(groups))
    assert {fqn for fqn, _ in selected(model, config)} == {"", "0", "1"}
