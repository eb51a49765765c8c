"""Several ranks in one trace: each is a process, by the clock of its host."""

from __future__ import annotations

from pathlib import Path

from sink_builders import frame_of
from trace_rules import check

from autoprof.base.storage.runs import RunFolder
from autoprof.frontends.cli import main
from tests.saved_records import write_records

ROWS = (("Layer", "forward", -1, 10),)


def test_ranks_are_on_one_timeline(tmp_path: Path) -> None:
    """It begins with the first of the steps on any rank."""
    for rank in range(2):
        made = RunFolder.create(tmp_path, rank=rank, world_size=2, name="run")
        write_records(made.rank_path, [frame_of(ROWS, step=at) for at in range(1, 5)])
    out = tmp_path / "trace.json"
    assert main(["show", str(tmp_path / "run"), "--trace", str(out), "--steps", "3:4"]) == 0
    events = check(out.read_text("utf-8"))
    begins = sorted((event["pid"], event["ts"]) for event in events if event["name"] == "step 3")
    assert begins == [(100_000, 0), (200_000, 0)]
