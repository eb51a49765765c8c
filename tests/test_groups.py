"""Repeated blocks share one name, a block unlike its siblings stands alone, and wrappers are looked through."""

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from autoprof.base.frame import Phase
from autoprof.targets import group_tree


class Block(nn.Module):
    """An attention and a feed-forward layer, of the width given."""

    def __init__(self, width=4, bias=False):
        super().__init__()
        self.attn = nn.Linear(width, width)
        self.ffn = nn.Linear(width, 2 * width)
        if bias:
            self.position = nn.Embedding(3, 2)

    def forward(self, x):
        return self.ffn(self.attn(x))


class Sleep(nn.Module):
    """A layer of a user's own, with a setting and no parameters."""

    def __init__(self, ms, rate=0.0):
        super().__init__()
        self.ms = ms
        self.layer_idx = id(self)

    def forward(self, x):
        return x


class Holder(nn.Module):
    """A module with these children, called or not."""

    def __init__(self, **children):
        super().__init__()
        for name, child in children.items():
            setattr(self, name, child)

    def forward(self, x):
        return x


def names(model):
    """Return the names of all groups inside the model, with the number of their blocks."""
    return [(group.name, group.blocks) for group in group_tree(model).below()][1:]


def paths(model):
    """Return the names alone."""
    return [name for name, _ in names(model)]


class TestRepeatedBlocks:
    """Equal blocks of a list or a sequence are one group, and so are the modules at the same place in them."""

    def test_blocks_of_a_list(self):
        """The list is never called: it is part of their name."""
        model = Holder(transformer=Holder(h=nn.ModuleList(Block() for _ in range(12))), head=nn.Linear(4, 9))
        assert names(model) == [
            ("transformer", 1),
            ("transformer/h.*", 12),
            ("transformer/h.*/attn", 12),
            ("transformer/h.*/ffn", 12),
            ("head", 1),
        ]

    def test_a_block_with_another_stride_stands_alone(self):
        """Settings of layers count, beside the shapes of their weights."""
        convs = [Holder(conv=nn.Conv2d(2, 2, 1, stride=stride)) for stride in (2, 1, 1)]
        assert paths(nn.Sequential(*convs))[:4] == ["0", "0/conv", "1-2", "1-2/conv"]

    def test_dropout_does_not_tell_blocks_apart(self):
        """Libraries give each block its own rate, and no module at all for a rate of zero."""
        drops = [nn.Identity(), nn.Dropout(0.1), nn.Dropout(0.2)]
        assert names(nn.ModuleList(Holder(drop=drop) for drop in drops)) == [("0-2", 3), ("0-2/drop", 3)]

    def test_no_name_is_a_star_alone(self):
        """Blocks of a model that is itself the sequence have their numbers for a name."""
        assert paths(nn.Sequential(*(Block() for _ in range(6))))[0] == "0-5"
        nested = nn.Sequential(nn.Sequential(*(Block() for _ in range(6))), nn.Linear(4, 9))
        assert paths(nested)[:2] == ["0", "0/*"]

    def test_several_kinds_in_turn_are_named_by_their_numbers(self):
        """With two repeated kinds in one list, a star would not say which."""
        layers = nn.ModuleList(Block() if number % 2 else nn.Linear(4, 4) for number in range(8))
        assert [path for path in paths(layers) if "/" not in path] == ["0,2..6", "1,3..7"]
        halves = nn.ModuleList(Block(2 if number < 4 else 4) for number in range(8))
        assert [path for path in paths(halves) if "/" not in path] == ["0-3", "4-7"]


class TestNamesThatAreNoLists:
    """Attributes with a number, and dictionaries."""

    def test_equal_numbered_attributes(self):
        """``layer0`` to ``layer2``, if all are equal."""
        assert names(Holder(layer0=Block(), layer1=Block(), layer2=Block()))[0] == ("layer*", 3)

    def test_experts_in_a_dictionary(self):
        """Numbered keys are grouped, words are not."""
        experts = nn.ModuleDict({f"expert_{number}": nn.Linear(2, 2) for number in range(4)})
        heads = nn.ModuleDict({"text": nn.Linear(2, 2), "image": nn.Linear(2, 2)})
        assert names(Holder(experts=experts, heads=heads)) == [
            ("experts.expert_*", 4),
            ("heads.text", 1),
            ("heads.image", 1),
        ]


class TestWrappers:
    """Wrappers change neither the groups nor their names."""

    def test_checkpoint_and_compile_around_each_block(self):
        """They are as the blocks."""
        plain = paths(Holder(h=nn.ModuleList([Block(), Block()])))
        assert paths(Holder(h=nn.ModuleList([checkpoint_wrapper(Block()) for _ in range(2)]))) == plain
        assert paths(Holder(h=nn.ModuleList([torch.compile(Block(), backend="eager") for _ in range(2)]))) == plain


class TestGroups:
    """What a group is good for."""

    def test_the_targets_of_a_group(self):
        """One for each member, under the group's name, in all phases."""
        model = Holder(h=nn.ModuleList([Block(), Block()]))
        targets = group_tree(model).children[0].targets()
        assert [(target.module, target.fqn, target.name) for target in targets] == [
            (model.h[0], "h.0", "h.*"),
            (model.h[1], "h.1", "h.*"),
        ]
        assert {target.phases for target in targets} == {frozenset({Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD})}
