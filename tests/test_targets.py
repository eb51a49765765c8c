"""Rules choose modules: by whole fqns without wrappers, the first rule first, containers through their children."""

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from autoprof.base.frame import Phase
from autoprof.errors import TargetError
from autoprof.sinks import Config, load_config, parse_config
from autoprof.targets import Target, select_targets


class Stage(nn.Module):
    """A stage with two layers."""

    def __init__(self):
        super().__init__()
        self.attn = nn.Linear(2, 2)
        self.ffn = nn.Linear(2, 2)

    def forward(self, x):
        return self.ffn(self.attn(x))


class Model(nn.Module):
    """Two stages as modules and a third that is a list, as ``stage8`` of the VRT is."""

    def __init__(self):
        super().__init__()
        self.stage1 = Stage()
        self.stage2 = Stage()
        self.stage8 = nn.ModuleList([Stage(), nn.Linear(2, 2)])

    def forward(self, x):
        for layer in (self.stage1, self.stage2, *self.stage8):
            x = layer(x)
        return x


def holding(**children):
    """Return a model with these children."""
    model = nn.Sequential()
    for name, child in children.items():
        setattr(model, name, child)
    return model


def adapters(model):
    """Return the model in wrappers as those of PEFT: the outer one is called, the inner one calls ``forward``."""
    tuner = type(
        "LoraModel", (type("BaseTuner", (nn.Module,), {}),), {"forward": lambda self, x: self.model.forward(x)}
    )
    peft = type("PeftModelForCausalLM", (type("PeftModel", (nn.Module,), {}),), {})
    peft.forward = lambda self, x: self.base_model(x)
    outer = peft()
    outer.base_model = tuner()
    outer.base_model.model = model
    return outer


def chosen(model, *rules):
    """Return fqn and name of each target that the rules choose."""
    return [(target.fqn, target.name) for target in select_targets(model, load_config({"targets": rules}))]


def refusal(model, *rules):
    """Return the message of rules that match nothing."""
    with pytest.raises(TargetError) as raised:
        select_targets(model, load_config({"targets": rules}))
    return str(raised.value)


class TestWithoutRules:
    """A configuration without targets begins with the model's first levels of nesting."""

    def test_the_first_levels(self):
        """Each module once, a list through its members, in the order of the model, in all phases."""
        model = Model()
        selection = select_targets(model, Config())
        assert [(target.fqn, target.name) for target in selection] == [
            ("stage1", "stage1"),
            ("stage1.attn", "stage1/attn"),
            ("stage1.ffn", "stage1/ffn"),
            ("stage2", "stage2"),
            ("stage2.attn", "stage2/attn"),
            ("stage2.ffn", "stage2/ffn"),
            ("stage8.0", "stage8.0"),
            ("stage8.0.attn", "stage8.0/attn"),
            ("stage8.0.ffn", "stage8.0/ffn"),
            ("stage8.1", "stage8.1"),
        ]
        phases = frozenset({Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD})
        assert selection[0] == Target(model.stage1, "stage1", "stage1", phases, False, -1)

    def test_children_that_are_never_called_are_not_targets(self):
        """Parameter lists are data, and an empty list holds nothing."""
        model = holding(a=nn.Linear(1, 1), p=nn.ParameterList(), d=nn.ParameterDict(), empty=nn.ModuleList())
        assert chosen(model) == [("a", "a")]


class TestMatching:
    """Which rule gets which module."""

    def test_match_must_match_the_whole_fqn(self):
        """As in PEFT, a part is not enough."""
        assert chosen(Model(), {"match": "stage1"}) == [("stage1", "stage1")]

    def test_the_name_is_expanded_from_the_match(self):
        """Groups by number, by word, and the whole."""
        rules = [
            {"match": "stage([12])", "name": r"VRT/Stage\1"},
            {"match": r"(?P<s>\w+)\.attn", "name": r"\g<s>/\g<0>"},
        ]
        assert chosen(Model(), *rules) == [
            ("stage1", "VRT/Stage1"),
            ("stage1.attn", "stage1/stage1.attn"),
            ("stage2", "VRT/Stage2"),
            ("stage2.attn", "stage2/stage2.attn"),
        ]

    def test_the_first_rule_wins(self):
        """A later rule gets what is left."""
        selection = select_targets(
            Model(), parse_config("targets: [{match: stage1, name: a}, {match: 'stage.', name: b}]")
        )
        assert [(target.fqn, target.name, target.rule) for target in selection] == [
            ("stage1", "a", 0),
            ("stage2", "b", 1),
            ("stage8.0", "b", 1),
            ("stage8.1", "b", 1),
        ]

    def test_a_rule_whose_modules_are_all_taken_is_noted(self):
        """It is no error: the rule matches, in vain."""
        config = parse_config("targets:\n  - match: 'stage.'\n  - match: stage1\n", "train.yaml")
        assert select_targets(Model(), config).notes == (
            "train.yaml:3: targets[1]: has no effect: every module that it matches belongs to targets[0]",
        )


class TestContainers:
    """A container that is never called is timed through its children."""

    def test_the_children_bear_the_containers_name(self):
        """In the real VRT ``stage8`` is exactly that."""
        assert chosen(Model(), {"match": "stage8", "name": "VRT/Stage8"}) == [
            ("stage8.0", "VRT/Stage8"),
            ("stage8.1", "VRT/Stage8"),
        ]

    def test_a_lightning_module_without_forward_is_a_container(self):
        """Its base class has a ``forward`` that raises; ``training_step`` calls the modules inside."""
        base = type("LightningModule", (nn.Module,), {"forward": lambda self: nn.Module.forward(self)})
        lightning = type("Lit", (base,), {})()
        lightning.net = Stage()
        assert chosen(lightning, {"match": ""}) == [("net", "Lit")]
        assert chosen(lightning)[0] == ("net", "net")
        called = type("Lit", (base,), {"forward": lambda self, x: x})()
        assert chosen(called, {"match": ""}) == [("", "Lit")]


class TestWrappers:
    """Wrappers vanish from fqns, and only wrappers."""

    def test_a_checkpoint_wrapper(self):
        """The wrapped module is the target, because it is what runs again to recompute."""
        stage = Stage()
        model = holding(a=checkpoint_wrapper(stage))
        (target,) = select_targets(model, parse_config("targets: [{match: a, type: Stage}]"))
        assert target.module is stage
        assert chosen(model, {"match": r"a\.attn"}) == [("a.attn", "a/attn")]

    @pytest.mark.parametrize(
        ("name", "child"),
        [
            ("DistributedDataParallel", "module"),
            ("FullyShardedDataParallel", "_fsdp_wrapped_module"),
            ("OffloadWrapper", "_checkpoint_wrapped_module"),
            ("_FabricModule", "_forward_module"),
        ],
    )
    def test_wrappers_are_known_by_the_name_of_their_class(self, name, child):
        """Subclasses count too; none of them is imported for that."""
        wrapper = type("Mine", (type(name, (nn.Module,), {}),), {})()
        setattr(wrapper, child, Model())
        assert chosen(wrapper, {"match": "stage1"}) == [("stage1", "stage1")]

    def test_a_model_with_adapters_is_timed_from_outside(self):
        """PEFT calls the model's ``forward``, which skips hooks; its modules keep the names of the model."""
        model = Model()
        adapted = adapters(model)
        selection = select_targets(adapted, parse_config("targets: [{match: ''}, {match: 'stage1'}]"))
        assert [(target.module, target.name) for target in selection] == [(adapted, "Model"), (model.stage1, "stage1")]
        assert chosen(nn.DataParallel(adapted), {"match": r"stage1\.attn"}) == [("stage1.attn", "stage1/attn")]

    def test_a_compiled_module_is_timed_from_outside(self):
        """The compiled wrapper is the target, under the fqn and class of what it wraps; the inside may be one too."""
        model = Model()
        model.stage1 = torch.compile(model.stage1, backend="eager")
        selection = select_targets(
            model, parse_config(r"targets: [{match: stage1, type: Stage}, {match: 'stage1\.attn'}]")
        )
        assert selection[0].module is model.stage1
        assert [target.fqn for target in selection] == ["stage1", "stage1.attn"]


class TestKindsOfModules:
    """Shared, lazy, scripted, parametrized."""

    def test_a_shared_module_is_one_target(self):
        """The first fqn is its fqn; a rule may use any of them, and names by the one that it matched."""
        shared = nn.Linear(1, 1)
        model = holding(a=shared, b=shared)
        assert chosen(model, {"match": "[ab]"}) == [("a", "a")]
        assert chosen(model, {"match": "b"}) == [("a", "b")]

    @pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
    def test_scripted_modules_are_ordinary_targets(self):
        """They go by the names that they had as Python."""
        model = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
        assert chosen(model, {"type": "Linear"}, {"match": "1"}) == [("0", "0"), ("1", "1")]
        assert chosen(model) == [("", "Sequential")]


class TestRulesThatMatchNothing:
    """They are errors at set-up, together, each with its place and the nearest."""

    def test_all_of_them_are_reported_together(self):
        """With the file and line of each."""
        config = parse_config("targets:\n  - match: stag1\n  - match: stage2\n  - type: Stagee\n", "train.yaml")
        with pytest.raises(TargetError) as raised:
            select_targets(Model(), config)
        first, second = str(raised.value).split("\n")
        assert first.startswith("train.yaml:2: targets[0].match: 'stag1' matches no module; did you mean 'stage1'")
        assert second == "train.yaml:4: targets[2].type: 'Stagee' matches no class name; did you mean 'Stage'?"

    def test_a_pattern_that_would_match_a_part_is_told_so(self):
        """The commonest mistake, with a pattern that works."""
        assert refusal(Model(), {"match": "attn"}) == (
            "config: targets[0].match: 'attn' matches no whole fqn, only a part of "
            "'stage1.attn', 'stage2.attn', 'stage8.0.attn'; allowed: the whole, such as '.*attn'"
        )

    def test_match_and_type_that_exclude_each_other(self):
        """The classes that were found are named."""
        assert refusal(Model(), {"match": "stage1", "type": "Linear"}) == (
            "config: targets[0]: no module has both the 'match' and the 'type'; "
            "the 'match' alone finds 'stage1' (Stage)"
        )
