"""The records of a process that was killed, by what the files promise: whole lines but for the last one."""

from pathlib import Path

import autoprof


def kept_steps(run: Path) -> list[int]:
    """Return the steps in the records of rank 0: all from the first to the last one, of which one line may be torn."""
    frames = autoprof.read_run(run).frames
    steps = [frame.step for frame in frames]
    is_torn = not (run / "rank0" / "steps.jsonl").read_bytes().endswith(b"\n")
    assert frames.bad_lines <= int(is_torn), "a line is damaged that is not the last one"
    assert steps == list(range(1, len(steps) + 1)), "a step is missing among those kept"
    return steps
