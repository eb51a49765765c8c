"""What can be asked for, what it defaults to, and what is refused."""

from pathlib import Path

import pytest

from autoprof.base.frame import Phase
from autoprof.config import Sample
from autoprof.errors import ConfigError
from autoprof.sinks import Config, Sinks, parse_config
from autoprof.sinks.console import ConsoleOptions
from autoprof.sinks.jsonl import JsonlOptions
from autoprof.sinks.log import LogOptions
from autoprof.sinks.memory_plot import MemoryPlotOptions


def problem(text):
    """Return the only problem of a text that must have one."""
    with pytest.raises(ConfigError) as raised:
        parse_config(text)
    (only,) = raised.value.problems
    return only


def test_the_defaults():
    """A configuration without keys times every child, in all five sinks."""
    config = Config()
    assert (config.enabled, config.targets, config.functions) == (True, (), ())
    assert (config.step, config.output) == ("auto", Path("runs"))
    assert config.sample == Sample(every=1, warmup=3, budget=0.01)
    assert config.sinks.console == ConsoleOptions(top=5, every=10)
    assert config.sinks.log == LogOptions(every=10, flush_s=5.0, flush_every=None)
    assert config.sinks.jsonl == JsonlOptions(flush_s=5.0)
    assert config.sinks.memory_plot == MemoryPlotOptions()


def test_a_port_has_an_upper_end():
    """The bound above is said as the one below is."""
    message = problem("sinks: {prometheus: {port: 70000}}")
    assert message.endswith("70000 is a number; allowed: less than or equal to 65535")


def test_no_sinks():
    """``sinks: {}`` is none, and different from leaving the key out."""
    assert parse_config("sinks: {}").sinks == Sinks(console=None, log=None, jsonl=None, memory_plot=None)


def test_a_dumped_configuration_is_read_back():
    """What ``run.json`` records of a configuration validates to the same one."""
    config = parse_config("targets: [{match: a, phases: [forward]}]\nsinks: {log: }\nsample: {budget: null}")
    assert Config.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize("value", ["", "{}", "null"])
def test_a_named_sink_is_on(value):
    """A sink without options has its defaults, and the others stay off."""
    assert parse_config(f"sinks:\n  log: {value}\n").sinks == Sinks(log=LogOptions())


@pytest.mark.parametrize("text", ["targets:", "functions:", "sample:"])
def test_an_empty_section_has_its_default(text):
    """A list whose entries are all commented out is an empty list."""
    assert parse_config(text) == Config()


def test_an_empty_sinks_key_is_ambiguous():
    """It could mean none or all; the error says how to write either."""
    assert problem("sinks:").endswith("write {} for no sinks, or remove the key for the default sinks")


@pytest.mark.parametrize(
    "text",
    [
        "enabled: 1",
        "output: ''",
        'output: "a\\0b"',
        "sample: [1]",
        "sample: {every: 1.0}",
        "sample: {every: 0}",
        "sample: {warmup: -1}",
        "sample: {budget: 0}",
        "sample: {budget: .nan}",
        "sinks: [console]",
        "sinks: {console: true}",
        "sinks: {log: {flush_s: .inf}}",
        "sinks: {log: {flush_every: 0}}",
        "targets: {match: a}",
        "targets: [a]",
        "targets: [{match: a, memory: 1}]",
        "targets: [{match: a, name: ''}]",
        "targets: [{match: a, phases: []}]",
        "targets: [{match: a, phases: [optimizer]}]",
        "targets: [{}]",
        "functions: [{path: a.b}]",
        "functions: [{path: 'a:b:c'}]",
        "functions: [a:b]",
    ],
)
def test_an_invalid_value_is_refused(text):
    """One sentence says what is wrong and what is allowed; nothing is converted silently."""
    assert any(words in problem(text) for words in ("; allowed: ", "did you mean", "; add "))


def test_the_phases_of_a_rule():
    """They are phases, all three by default, in the order they were written."""
    written, default = parse_config("targets: [{match: a, phases: [backward, forward]}, {match: b}]").targets
    assert written.phases == (Phase.BACKWARD, Phase.FORWARD)
    assert default.phases == (Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD)


@pytest.mark.parametrize("key", ["match", "type"])
def test_a_regular_expression_that_is_none(key):
    """The reason of ``re`` is passed on, with the position."""
    reason = "unterminated character set at character 7"
    assert problem(f"targets: [{{{key}: 'stage([1-7'}}]").startswith(
        f"config:1: targets[0].{key}: 'stage([1-7' is not a regular expression: {reason}; allowed"
    )


@pytest.mark.parametrize("name", [r"\2", r"\g<wort>", r"\g<2>", r"\q", r"\g<"])
def test_a_template_refers_to_groups_that_exist(name):
    """A reference that cannot be filled is found at load, and the groups that there are are named."""
    text = problem(f"targets: [{{match: '(?P<word>a)', name: '{name}'}}]")
    assert text.startswith(f"config:1: targets[0].name: '{name}' does not fit 'match': ")
    assert text.endswith(r"allowed: text with \g<0>, \1, \g<word>")


def test_a_rule_with_only_a_type_has_the_whole_fqn_as_its_group():
    """There is no group 1 without ``match``."""
    assert parse_config(r"targets: [{type: A, name: 'X/\g<0>'}]").targets[0].name == r"X/\g<0>"
    assert problem(r"targets: [{type: A, name: '\1'}]").endswith(r"allowed: text with \g<0>")


def test_a_key_in_the_wrong_place_is_pointed_to_the_right_one():
    """A key that exists elsewhere is named with its place."""
    assert problem("budget: 0.1").endswith("the key is unknown here; did you mean 'sample.budget'?")
    assert problem("functions: [{path: 'a:b', match: a}]").endswith("did you mean 'targets[].match'?")
