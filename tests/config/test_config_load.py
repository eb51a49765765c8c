"""A configuration comes from a file, a mapping or nothing, and whatever is wrong with it is one clear error."""

import pickle
from collections import UserDict

import pytest

from autoprof.config import TargetRule
from autoprof.errors import ConfigError
from autoprof.sinks import Config, Sinks, load_config, parse_config


@pytest.fixture
def write(tmp_path):
    """Write a file and return its path."""

    def write(content, name="train.yaml"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def problems(source):
    """Return the problems of a configuration that must have some."""
    with pytest.raises(ConfigError) as raised:
        load_config(source)
    assert raised.value.__cause__ is None, "another library's traceback would be shown"
    assert "pydantic" not in str(raised.value)
    return raised.value.problems


def test_nothing_means_the_defaults():
    """None is the configuration without any key, and a ``Config`` needs no loading."""
    config = Config()
    assert load_config(None) == config
    assert load_config(config) is config


@pytest.mark.parametrize("content", ["", "# only a comment\n", "null\n", "\ufeff"])
def test_an_empty_file_means_the_defaults(write, content):
    """An empty file, or one of comments only, is the configuration without any key."""
    assert load_config(write(content)) == Config()


def test_a_mapping_reads_like_a_file(write):
    """The same keys give an equal configuration, whatever they came from."""
    text = "targets: [{match: 'a', phases: [forward]}]\nsinks: {log: }\n"
    given = UserDict({"targets": ({"match": "a", "phases": ("forward",)},), "sinks": UserDict({"log": None})})
    assert load_config(given) == load_config(write(text))


def test_a_mapping_may_hold_parts():
    """Rules and sinks may be given as objects."""
    config = load_config({"targets": [TargetRule(match="a")], "sinks": Sinks()})
    assert config.targets[0].match == "a"
    assert config.sinks == Sinks()


def test_every_problem_of_a_file_is_reported_with_its_line(write):
    """The problems come together, in the order of their lines, each with file, line and key."""
    path = write("targets:\n  - match: '('\n    memory: 1\nsample:\n  every: 0\nsteps: auto\n")
    assert [problem.rsplit(": ", 1)[0].split(": ")[:2] for problem in problems(path)] == [
        [f"{path}:2", "targets[0].match"],
        [f"{path}:3", "targets[0].memory"],
        [f"{path}:5", "sample.every"],
        [f"{path}:6", "steps"],
    ]


def test_the_problems_of_a_mapping_name_the_key():
    """Without a file the place is ``config`` and the dotted key."""
    assert problems({"sample": {"every": 0}, 3: 4}) == (
        "config: a key here is not text: 3 is a number; allowed: text",
        "config: sample.every: 0 is a number; allowed: greater than or equal to 1",
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [("", "Is a directory"), ("none.yaml", "No such file or directory"), ("\0", "embedded null byte")],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, reason):
    """The system's reason is passed on."""
    (problem,) = problems(tmp_path / name)
    assert f": cannot be read: {reason}" in problem


@pytest.mark.parametrize("content", ["output: ü".encode("latin-1"), "output: out".encode("utf-16")])
def test_other_encodings_are_refused(write, content):
    """Only UTF-8 is read, and the error points at the byte."""
    (problem,) = problems(write(content))
    assert "train.yaml:1: byte " in problem
    assert problem.endswith("is not UTF-8; allowed: a file saved as UTF-8")


def test_yaml_text_is_not_a_path():
    """Text with line breaks was meant for ``parse_config``."""
    (problem,) = problems("output: runs\nstep: auto\n")
    assert "parse_config" in problem


@pytest.mark.parametrize("source", [3, ["a"], b"train.yaml"])
def test_other_types_are_refused(source):
    """What is neither path nor mapping is named."""
    (problem,) = problems(source)
    assert problem.endswith("allowed: the path of a YAML file, a mapping, a Config or None")


def test_a_mapping_that_contains_itself_is_refused():
    """The walk ends."""
    endless = {}
    endless["sample"] = endless
    assert problems(endless) == ("config: sample: nested too deeply; allowed: 50 levels",)


def test_names_of_files_and_keys_cannot_act_on_the_terminal():
    """Escape sequences in keys and values are written out."""
    report = problems({"\x1b[2J": 1, "step": "\x1b[2J\u202e"})
    assert sorted(report) == [
        r"config: \x1b[2J: the key is unknown; "
        "allowed: compile, deep, enabled, flight_recorder, flops, functions, memory_snapshot, monitor, output, "
        "output_max_mb, sample, sinks, step, targets",
        r"config: step: '\x1b[2J\u202e' is unknown; allowed: auto, manual",
    ]


def test_a_configuration_knows_its_source_without_being_different_for_it(write):
    """Two files that say the same are equal; each still knows its lines."""
    config = load_config(path := write("\n\noutput: out"))
    assert config == load_config({"output": "out"})
    assert config.source.place(("output",)) == f"{path}:3: output"
    assert config.source.place(("targets", 0, "match")) == f"{path}: targets[0].match"


def test_a_configuration_can_be_pickled_and_hashed():
    """It is plain data."""
    config = parse_config("targets: [{match: a}]", "train.yaml")
    copy = pickle.loads(pickle.dumps(config))
    assert copy == config
    assert hash(copy) == hash(config)
    assert copy.source.place(("targets", 0)) == "train.yaml:1: targets[0]"
