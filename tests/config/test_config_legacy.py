"""The ``LOG:`` block of the timing logger that came before autoprof still means what it meant."""

from pathlib import Path

import pytest

from autoprof.config import Sinks, load_config, parse_config
from autoprof.errors import ConfigError
from autoprof.sinks.console import ConsoleOptions
from autoprof.sinks.log import LogOptions

SEED = """
SAVE_DIR: outputs/run_001
MODEL: !!python/name:my.model {stages: [1, 2], stages: [3]}
TRAIN_2: {LR: 1.0e-4}
LOG:
  ENABLE_TIMING_LOG: true
  TIMING_CONSOLE: true
  TIMING_FILE: true
  TIMING_CONSOLE_INTERVAL: 20
  TIMING_FILE_INTERVAL: 50
"""


def problems(text):
    """Return the problems of a text that must have some."""
    with pytest.raises(ConfigError) as raised:
        parse_config(text, "train.yaml")
    return raised.value.problems


def test_the_block_asks_for_console_and_log():
    """Both intervals arrive, and nothing is written that the old logger did not write."""
    config = parse_config(SEED)
    assert config.enabled
    assert config.sinks == Sinks(console=ConsoleOptions(every=20), log=LogOptions(flush_every=50))
    assert config.output == Path("outputs/run_001")


@pytest.mark.parametrize("text", ["LOG:", "LOG: {}"])
def test_an_empty_block_has_the_old_defaults(text):
    """Console each 10 steps, file flushed each 50, output where autoprof puts it."""
    config = parse_config(text)
    assert config.sinks == Sinks(console=ConsoleOptions(every=10), log=LogOptions(flush_every=50))
    assert config.output == Path("runs")


def test_the_block_reads_the_same_from_a_mapping():
    """A project that has parsed its file already passes the result on."""
    given = {"LOG": {"TIMING_CONSOLE": False}, "SAVE_DIR": "out", "MODEL": object()}
    config = load_config(given)
    assert config.sinks == Sinks(log=LogOptions(flush_every=50))
    assert config.output == Path("out")


def test_a_block_that_is_switched_off_switches_autoprof_off():
    """``ENABLE_TIMING_LOG: false`` is ``enabled: false`` without sinks."""
    config = parse_config("LOG: {ENABLE_TIMING_LOG: false, TIMING_CONSOLE: true}")
    assert not config.enabled
    assert config.sinks == Sinks()


def test_todays_keys_stand_beside_the_block():
    """Targets and sinks of today join; the block's intervals fill in what they leave open."""
    config = parse_config(SEED + "targets: [{match: a}]\nsinks: {console: {top: 3}, log: , jsonl: }\noutput: here\n")
    assert config.targets[0].match == "a"
    assert config.sinks.console == ConsoleOptions(top=3, every=20)
    assert config.sinks.log == LogOptions(flush_every=50)
    assert config.sinks.jsonl is not None
    assert config.output == Path("here")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("ENABLE_TIMING_LOG: true", "enabled: false", "enabled: false disagrees with LOG.ENABLE_TIMING_LOG: true"),
        ("ENABLE_TIMING_LOG: false", "enabled: true", "enabled: true disagrees with LOG.ENABLE_TIMING_LOG: false"),
        ("TIMING_CONSOLE: true", "sinks: {}", "sinks.console: its absence disagrees with LOG.TIMING_CONSOLE: true"),
        ("TIMING_FILE: false", "sinks: {log: }", "sinks.log: its presence disagrees with LOG.TIMING_FILE: false"),
        (
            "TIMING_CONSOLE_INTERVAL: 10",
            "sinks: {console: {every: 5}}",
            "sinks.console.every: 5 disagrees with LOG.TIMING_CONSOLE_INTERVAL: 10",
        ),
        (
            "TIMING_FILE_INTERVAL: 7",
            "sinks: {log: {flush_every: null}}",
            "sinks.log.flush_every: null disagrees with LOG.TIMING_FILE_INTERVAL: 7",
        ),
    ],
)
def test_a_disagreement_names_both_keys(old, new, problem):
    """Where the two were written and differ, neither wins silently."""
    assert problems(f"LOG: {{{old}}}\n{new}") == (
        f"train.yaml:2: {problem}; allowed: one of the two keys, or equal values",
    )


def test_equal_values_do_not_disagree():
    """The same may be said twice."""
    text = "LOG: {TIMING_CONSOLE_INTERVAL: 5, TIMING_CONSOLE: true}\nsinks: {console: {every: 5}}"
    assert parse_config(text).sinks == Sinks(console=ConsoleOptions(every=5))


def test_problems_of_the_block_are_named_in_its_own_words():
    """Unknown keys get the nearest old one, wrong values what is allowed, and today's keys are checked as well."""
    assert problems("LOG:\n  TIMING_FIL: true\n  TIMING_CONSOLE_INTERVAL: 0\n  TIMING_FILE: 1\nstep: x\n") == (
        "train.yaml:2: LOG.TIMING_FIL: the key is unknown; "
        "did you mean 'TIMING_FILE' or 'TIMING_FILE_INTERVAL' or 'TIMING_CONSOLE'?",
        "train.yaml:3: LOG.TIMING_CONSOLE_INTERVAL: 0 is out of range; allowed: a whole number, at least 1",
        "train.yaml:4: LOG.TIMING_FILE: 1 is a number; allowed: true or false",
        "train.yaml:5: step: 'x' is unknown; allowed: auto, manual",
    )


def test_the_block_is_a_mapping():
    """Anything else is an error that lists its keys."""
    (problem,) = problems("LOG: true")
    assert problem.startswith("train.yaml:1: LOG: true is a boolean; allowed: a mapping with the keys ENABLE_TIMING")


@pytest.mark.parametrize("text", ["MODEL: {}", "SAVE_DIR: out"])
def test_a_projects_keys_are_passed_over_only_beside_the_block(text):
    """Without ``LOG`` the file is autoprof's own, and keys in capitals are mistakes."""
    assert "the key is unknown" in problems(text)[0]


def test_lower_case_keys_are_always_autoprofs():
    """A typing mistake is found beside the block too."""
    assert problems("LOG: {}\ntarget: []") == ("train.yaml:2: target: the key is unknown; did you mean 'targets'?",)
