"""The ``LOG:`` block of the first timing logger keeps its meaning."""

from pathlib import Path

import pytest

from autoprof.errors import ConfigError
from autoprof.sinks import Sinks, load_config, parse_config
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


@pytest.mark.parametrize(
    ("text", "sinks", "output"),
    [
        (SEED, Sinks(console=ConsoleOptions(every=20), log=LogOptions(flush_every=50)), "outputs/run_001"),
        ("LOG:", Sinks(console=ConsoleOptions(every=10), log=LogOptions(flush_every=50)), "runs"),
        ("LOG: {TIMING_CONSOLE: false}\nSAVE_DIR: out", Sinks(log=LogOptions(flush_every=50)), "out"),
        ("LOG: {ENABLE_TIMING_LOG: false, TIMING_CONSOLE: true}", Sinks(), "runs"),
    ],
)
def test_the_block_configures_console_and_log(text, sinks, output):
    """Switches and intervals arrive; a project's own keys beside the block are ignored."""
    config = parse_config(text)
    assert (config.sinks, config.output) == (sinks, Path(output))
    assert config.enabled is ("ENABLE_TIMING_LOG: false" not in text)


def test_the_block_reads_the_same_from_a_mapping():
    """A project that has parsed its file already passes the result on."""
    config = load_config({"LOG": {"TIMING_CONSOLE": False}, "SAVE_DIR": "out", "MODEL": object()})
    assert (config.sinks, config.output) == (Sinks(log=LogOptions(flush_every=50)), Path("out"))


def test_todays_keys_take_precedence(caplog):
    """Beside ``sinks`` the block configures no sink, and a warning says so."""
    config = parse_config(SEED + "targets: [{match: a}]\nsinks: {console: {top: 3}, log: }\noutput: here\n")
    assert config.targets[0].match == "a"
    assert config.sinks == Sinks(console=ConsoleOptions(top=3), log=LogOptions())
    assert config.output == Path("here")
    assert "beside the key sinks" in caplog.text


def test_problems_of_the_block_are_named_in_its_own_words():
    """Unknown keys get the nearest old one, and today's keys are checked as well."""
    assert problems("LOG:\n  TIMING_FIL: true\n  TIMING_CONSOLE_INTERVAL: 0\n  TIMING_FILE: 1\nstep: x\n") == (
        "train.yaml:2: LOG.TIMING_FIL: the key is unknown; "
        "did you mean 'TIMING_FILE' or 'TIMING_FILE_INTERVAL' or 'TIMING_CONSOLE'?",
        "train.yaml:3: LOG.TIMING_CONSOLE_INTERVAL: 0 is a number; allowed: greater than or equal to 1",
        "train.yaml:4: LOG.TIMING_FILE: 1 is a number; allowed: true or false",
        "train.yaml:5: step: 'x' is unknown; allowed: auto, manual",
    )


@pytest.mark.parametrize("text", ["MODEL: {}", "SAVE_DIR: out", "LOG: {}\ntarget: []"])
def test_only_a_projects_keys_beside_the_block_are_ignored(text):
    """Without ``LOG`` the file is autoprof's own, and lower-case keys always are."""
    assert "the key is unknown" in problems(text)[0]
