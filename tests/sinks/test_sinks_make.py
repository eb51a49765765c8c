"""From the configuration's ``sinks`` to open sinks."""

import io
from pathlib import Path

import pytest
from sink_builders import Clock, summary_of

from autoprof.base.storage.runs import RunFolder
from autoprof.errors import OutputError
from autoprof.sinks import RunInfo, Sink, Sinks, make_sinks
from autoprof.sinks.console import ConsoleOptions
from autoprof.sinks.jsonl import JsonlOptions
from autoprof.sinks.log import LogOptions
from autoprof.sinks.memory_plot import MemoryPlotOptions
from autoprof.sinks.wandb import WandbOptions

ALL = Sinks(console=ConsoleOptions(), log=LogOptions(), jsonl=JsonlOptions(), memory_plot=MemoryPlotOptions())


def run_info(folder: RunFolder | None, clock: Clock, rank: int = 0) -> RunInfo:
    return RunInfo(folder, rank, io.StringIO(), clock)


def names(sinks: tuple[Sink, ...]) -> list[str]:
    for sink in sinks:
        sink.close(summary_of([]))
    return sorted(type(sink).__name__ for sink in sinks)


def test_other_ranks_write_only_their_records(tmp_path: Path, clock: Clock) -> None:
    """One terminal, one log and one plot a run."""
    folder = RunFolder.create(tmp_path, rank=3, world_size=4, name="run")
    assert names(make_sinks(ALL, run_info(folder, clock, rank=3))) == ["JsonlSink"]
    assert (tmp_path / "run" / "rank3" / "steps.jsonl").exists()


def test_without_a_folder_there_is_only_the_console(clock: Clock) -> None:
    """A run without files has nowhere to write."""
    assert names(make_sinks(ALL, run_info(None, clock))) == ["ConsoleSink"]


def test_a_sink_that_cannot_open_closes_the_others(tmp_path: Path, clock: Clock) -> None:
    """One clear error at set-up, and no file left open."""
    folder = RunFolder.create(tmp_path)
    (folder.rank_path / "steps.jsonl").mkdir()
    with pytest.raises(OutputError, match=r"steps\.jsonl: cannot be written"):
        make_sinks(ALL, run_info(folder, clock))


def test_wandb_without_a_key_is_an_error_of_ours(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """At set-up, with what to do; the traceback of wandb is the cause."""
    wandb = pytest.importorskip("wandb", reason="needs wandb")
    for variable in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(OutputError, match=r"^sinks\.wandb: cannot be opened \(.*API key.*\); log in with ") as raised:
        make_sinks(Sinks(wandb=WandbOptions(mode="online")), run_info(RunFolder.create(tmp_path), clock))
    assert str(raised.value).endswith("or record locally with mode: offline, or remove the key wandb")
    assert isinstance(raised.value.__cause__, wandb.errors.UsageError)
