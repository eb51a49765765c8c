"""YAML as people write it is understood, and YAML as nobody should write it does no harm."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoprof.errors import ConfigError
from autoprof.sinks import parse_config


def problems(text):
    """Return the problems of a text that must have some."""
    with pytest.raises(ConfigError) as raised:
        parse_config(text, "train.yaml")
    return raised.value.problems


@pytest.mark.parametrize(("written", "budget"), [("0.05", 0.05), ("1e-2", 0.01), ("5E-3", 0.005), (".5", 0.5)])
def test_numbers_may_have_an_exponent(written, budget):
    """YAML 1.1 would read ``1e-2`` as text, which nobody expects."""
    assert parse_config(f"sample: {{budget: {written}}}").sample.budget == budget


def test_words_are_those_of_yaml_1_2():
    """A folder may be called like a date, and ``on`` and ``off`` are text, as values and as keys."""
    config = parse_config("output: 2026-01-31\nflops: off\nflight_recorder: {mode: on}\nenabled: True")
    found = (str(config.output), config.flops, config.flight_recorder.mode, config.enabled)
    assert found == ("2026-01-31", "off", "on", True)
    assert problems("enabled: yes") == ("train.yaml:1: enabled: 'yes' is text; allowed: true or false",)


def test_anchors_and_merged_keys_are_understood():
    """A rule may take its options from another one, and its own keys win."""
    text = "targets:\n  - &base {match: a, phases: [forward], memory: true}\n  - {<<: *base, match: b}\n"
    first, second = parse_config(text).targets
    assert (second.match, second.phases, second.memory) == ("b", first.phases, True)


@pytest.mark.parametrize(
    "text", ["targets: &a [*a]", "sample: &a {b: *a}", "sample: &a {<<: *a}", "[" * 5000, "a: " + "[" * 5000]
)
def test_endless_and_abysmal_nesting_ends(text):
    """A value that contains itself, or thousands of levels, is one error."""
    (problem,) = problems(text)
    assert "nested too deeply; allowed: 50 levels" in problem


def test_a_key_that_is_there_twice_is_an_error():
    """YAML parsers keep the last one silently; here both lines are named, and other problems are still found."""
    assert problems("step: auto\noutput: a\nstep: nope\ntargets:\n  - {match: a, match: b}\nstepp: a\n") == (
        "train.yaml:3: step: the key is on line 1 as well; allowed: once",
        "train.yaml:5: targets[0].match: the key is on line 5 as well; allowed: once",
        "train.yaml:6: stepp: the key is unknown; did you mean 'step'?",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "sample:\n\tevery: 1",
            r"train.yaml:2: not YAML at column 1: found character '\t' that cannot start any token (while scanning "
            "for the next token); check the indentation and the quotes",
        ),
        (
            "a: 1\n---\na: 1",
            "train.yaml:2: not YAML at column 1: but found another document (expected a single document in the "
            "stream); check the indentation and the quotes",
        ),
        (
            "just words",
            "train.yaml:1: the file contains a single value; allowed: keys with values, such as 'output: runs'",
        ),
        ("\n- a", "train.yaml:2: the file contains a list; allowed: keys with values, such as 'output: runs'"),
        ("a: 1\nb: \x00", "train.yaml:2: the character U+0000 is not allowed in YAML; allowed: printable text"),
    ],
)
def test_invalid_yaml_is_one_error(text, problem):
    """Our sentence, with the line."""
    assert problems(text) == (problem,)


SIGNS = st.sampled_from("\n\t :-{}[],&*'\"#!?%|>a1~时\x85")
WORDS = st.sampled_from(["\n  ", "\n- ", ": ", "targets", "match", "phases", "LOG", "sinks", "log", "off", "<<: "])


@settings(deadline=None, max_examples=200)
@given(st.one_of(st.text(max_size=60), st.lists(st.one_of(SIGNS, WORDS), max_size=40).map("".join)))
def test_any_text_is_a_configuration_or_one_error(text):
    """Nothing else than ``ConfigError`` ever comes out, and every line of it names the file."""
    found = ("train.yaml",)
    try:
        parse_config(text, "train.yaml")
    except ConfigError as error:
        found = error.problems
    assert found
    assert all(problem.startswith("train.yaml") and "\n" not in problem for problem in found)


@pytest.mark.parametrize("value", ["!!python/object/apply:os.system ['x']", "!env 'x'", "!!int 'x'"])
def test_a_tag_is_never_followed(value):
    """No tag makes an object; it is an error that names the file."""
    (problem,) = problems(f"output: {value}")
    assert problem.startswith("train.yaml")
