"""ProfilerWrapper: each documented parameter, each documented file, and the intended differences."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity

from autoprof.compat.profiler_wrapper import ProfilerWrapper
from autoprof.errors import SessionError


class SpatialBlock(nn.Sequential):
    """A layer with attention in it, as the old tool looked for."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 8), nn.GELU())


def run(wrapper: ProfilerWrapper, names: tuple[str, ...] = ("spatial block", "temporal block"), rounds: int = 1) -> Any:
    block = SpatialBlock()
    for _ in range(rounds):
        with wrapper as profiler:
            for name in names:
                out = profiler.record_function(name, lambda: block(torch.ones(4, 8)))
            out.sum().backward()
    return wrapper


def files(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def names_in(path: Path) -> list[str]:
    found = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return [event["name"] for event in found if event.get("cat") == "user_annotation"]


def test_every_documented_file_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    """Trace, both pictures, the text of the memory and the table, with the model's prefix and the rank."""
    wrapper = run(ProfilerWrapper(
        is_st=False, log_dir="logs", mem_dir="mem", enabled_record_memory_pickle=True,
        enabled_record_cuda_average_time=True, enable_record_cuda_mm=True, enable_print_summary=True,
    ))  # fmt: skip
    assert files("logs") == [
        "cogvideo_rank0_cuda_time_plot.png", "cogvideo_rank0_memory_usage.txt",
        "cogvideo_rank0_memory_usage_line_chart.png", "cogvideo_rank0_trace.json", "cogvideo_rank_0.log",
    ]  # fmt: skip
    assert {path.name for path in wrapper.files} >= set(files("logs"))
    out = capsys.readouterr().out
    assert "spatial block" in out
    assert "operators" in out


def test_is_st_chooses_the_prefix() -> None:
    """True is opensora, False is cogvideo."""
    run(ProfilerWrapper(is_st=True, log_dir="logs"))
    assert files("logs") == ["opensora_rank0_trace.json"]
    assert ProfilerWrapper(is_st=False).prefix == "cogvideo"


def test_activities_are_torchs_own() -> None:
    """The list of ``ProfilerActivity`` as it was; a wrong one is an error at once."""
    run(ProfilerWrapper(False, activities=[ProfilerActivity.CPU], log_dir="logs"))
    assert files("logs") == ["cogvideo_rank0_trace.json"]
    with pytest.raises(SessionError, match="'gpu' is unknown"):
        ProfilerWrapper(False, activities=["gpu"])


def test_blocks_are_found_by_name_and_by_own_patterns() -> None:
    """Spatial and temporal blocks, flash attention; any expression for operators, kernels and layers."""
    wrapper = run(ProfilerWrapper(False, log_dir="logs", patterns={"products": "aten::(addmm|mm)$"}), rounds=2)
    assert {name: len(times) for name, times in wrapper.result.times_ms.items()} == {
        "spatial block": 2, "temporal block": 2, "products": 6,
    }  # fmt: skip
    assert wrapper.result.clock == ("device" if torch.cuda.is_available() else "CPU")


def test_several_runs_are_one_curve() -> None:
    """Each ``with`` is a run: layers follow one another."""
    wrapper = run(ProfilerWrapper(False, log_dir="logs", enable_record_cuda_mm=True), rounds=3)
    assert wrapper.counter == 3
    assert [(one.run, one.layer) for one in wrapper.result.memory] == [
        (run, layer) for run in (1, 2, 3) for layer in ("spatial block", "temporal block")
    ]
    text = Path("logs/cogvideo_rank0_memory_usage.txt").read_text(encoding="utf-8")
    assert [f"step {number}" in text.splitlines() for number in (1, 2, 3)] == [True, True, True]


def test_every_rank_has_files_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The old tool wrote the pictures of all ranks into one file, and the trace of rank 0 only."""
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        run(ProfilerWrapper(False, log_dir="logs", enable_print_summary=True))
    assert files("logs") == [
        "cogvideo_rank0_trace.json", "cogvideo_rank1_trace.json", "cogvideo_rank_0.log", "cogvideo_rank_1.log",
    ]  # fmt: skip


def test_memory_running_out_does_not_end_the_process() -> None:
    """The old tool printed it and called ``sys.exit``; here the exception goes through, and the files are there."""

    def forward() -> None:
        raise torch.cuda.OutOfMemoryError("out of memory")

    wrapper = ProfilerWrapper(False, log_dir="logs")
    with pytest.raises(torch.cuda.OutOfMemoryError), wrapper as profiler:
        profiler.record_function("block", forward)
    assert names_in(Path("logs/cogvideo_rank0_trace.json")) == ["ProfilerStep#1", "block"]


def test_every_parameter_of_the_old_interface_is_accepted() -> None:
    """By name and in the old order."""
    wrapper = ProfilerWrapper(True, [ProfilerActivity.CPU], False, True, "logs", "mem", 4, False, False, False, False)
    run(wrapper)
    assert files("logs") == ["opensora_rank0_trace.json"]
