"""A trace read back: whose kernel it is, what memory did, what is cut and what is said of broken files."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from deep_builders import device_trace, events, slice_of, write_trace

from autoprof._reports.text import cells
from autoprof.deep import joined, make_patterns, read_trace, render_memory, render_profile
from autoprof.deep.figures import memory_figure, time_figure
from autoprof.deep.reading import scan
from autoprof.deep.trace import encode_name, rewrite
from autoprof.errors import OutputError


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return device_trace(tmp_path / "trace.json")


def test_a_kernel_belongs_to_what_launched_it(trace: Path) -> None:
    """By its launch in the launching thread, however late it ran; a layer's own time is without the layers in it."""
    profile = read_trace(trace)
    found = {one.name: (one.device_ns, one.device_self_ns) for one in profile.layer_totals()}
    assert found == {"Block0": (100_000, 70_000), "Block0/FFN": (30_000, 30_000), "Block0 [backward]": (50_000, 50_000)}
    assert [(one.name, one.step, one.layer) for one in profile.layers] == [
        ("Block0", 7, None), ("Block0/FFN", 7, "Block0"), ("Block0 [backward]", 7, None),
    ]  # fmt: skip


def test_operators_and_kernels_have_their_times(trace: Path) -> None:
    """An operator's own device time is that of the kernels which it launched itself."""
    profile = read_trace(trace)
    operators = {one.name: one for one in profile.operators}
    outer, inner = operators["aten::scaled_dot_product_attention"], operators["aten::_flash_attention_forward"]
    assert (outer.device_ns, outer.device_self_ns, outer.host_self_ns) == (70_000, 0, 20_000)
    assert (inner.device_ns, inner.device_self_ns) == (70_000, 70_000)
    assert {one.name: (one.calls, one.device_ns) for one in profile.kernels} == {
        "sm90_gemm": (2, 80_000), "void flash_fwd_kernel<64>": (1, 70_000), "Memcpy HtoD": (1, 10_000),
    }  # fmt: skip


def test_a_pattern_finds_operators_layers_and_kernels(trace: Path) -> None:
    """An operator's device time is its kernels'; kernels are looked at where no operator has the name."""
    profile = read_trace(trace, make_patterns({"flash": "_flash_attention_forward|scaled_dot", "gemm": "gemm"}))
    (attention,) = profile.patterns["flash"]  # the outer one: nothing counts twice
    assert (attention.name, attention.device_ns, attention.layer) == (
        "aten::scaled_dot_product_attention", 70_000, "Block0",
    )  # fmt: skip
    assert [(one.device_ns, one.host_ns, one.layer) for one in profile.patterns["gemm"]] == [
        (30_000, None, "Block0/FFN"), (50_000, None, "Block0 [backward]"),
    ]  # fmt: skip
    assert profile.patterns["gemm"][0].step == 7


def test_the_seeds_patterns_are_there_without_asking(trace: Path, tmp_path: Path) -> None:
    """Flash attention by its operator; spatial, temporal and CogVideo blocks by their names, each phase apart."""
    assert list(read_trace(trace).patterns) == ["aten::_flash_attention_forward"]
    names = ["spatial block", "temporal_block", "blocks/0/TemporalBlock [backward]", "CogVideoX block", "block"]
    path = write_trace(
        tmp_path / "seed.json", [slice_of("user_annotation", name, 10.0 * at, 5.0) for at, name in enumerate(names)]
    )
    assert sorted(read_trace(path).patterns) == [
        "cogvideo block", "spatial block", "temporal block", "temporal block [backward]",
    ]  # fmt: skip


def test_memory_is_that_of_the_device_at_the_end_of_a_call(trace: Path) -> None:
    """What it grew by and its peak; the CPU's allocations are another account."""
    profile = read_trace(trace)
    block, inner, backward = profile.layers
    assert profile.device_memory
    assert (block.allocated_bytes, block.reserved_bytes, block.grown_bytes, block.peak_bytes) == (
        2560, 4096, 1536, 3072,
    )  # fmt: skip
    assert (inner.grown_bytes, backward.grown_bytes) == (-512, -2048)
    text = render_memory(profile)
    assert "device allocator" in text[0]
    assert [line.split()[1] for line in text if line[:6].strip().isdecimal()] == ["Block0/FFN", "Block0", "Block0"]


@pytest.mark.parametrize("width", [80, 200])
def test_the_tables_fit_the_width(trace: Path, width: int) -> None:
    """No line is wider, and every table is there."""
    lines = render_profile(read_trace(trace), width=width)
    assert max(cells(line) for line in lines) <= width
    text = "\n".join(lines)
    for title in ("layers, in order", "patterns, device ms", "operators", "kernels on the device", "of all"):
        assert title in text


def test_the_figures_say_whose_time_and_which_unit(trace: Path) -> None:
    """Axes have labels with units; the footnote says what a number is."""
    profile = read_trace(trace)
    time, memory = time_figure(profile), memory_figure(profile)
    assert time is not None
    assert memory is not None
    assert [axes.get_xlabel() for axes in time.axes] == ["device self time, all steps (ms)", "call"]
    assert time.axes[1].get_ylabel() == "device time of a call (ms)"
    assert memory.axes[0].get_ylabel() == "memory (KiB)"
    assert [line.get_label() for line in memory.axes[0].lines[:2]] == ["allocated", "reserved"]


def test_captures_are_put_together(trace: Path) -> None:
    """Calls follow one another, operators add up."""
    one = read_trace(trace)
    both = joined((one, one))
    assert len(both.layers) == 2 * len(one.layers)
    assert [call.start_ns for call in both.layers] == sorted(call.start_ns for call in both.layers)
    assert sum(row.calls for row in both.operators) == 2 * sum(row.calls for row in one.operators)


def test_the_shortest_events_are_cut_and_names_stay(trace: Path) -> None:
    """Memory and arrows go first, then what is shorter than some power of two; the file stays whole JSON."""
    reading = scan(trace)
    fixed = reading.sizes.fixed
    assert reading.sizes.threshold(fixed - 1) is None
    threshold = reading.sizes.threshold(fixed + 700)
    assert threshold is not None
    longest_ns = rewrite(trace, threshold, {"Block0": '块 "0"'})
    left = events(trace)
    assert 0 < longest_ns < 70_000
    assert '块 "0"' in [event["name"] for event in left]
    assert "[memory]" not in [event["name"] for event in left]
    assert all(event["dur"] * 1000 >= longest_ns for event in left if event.get("cat") in ("cpu_op", "kernel"))
    assert len(trace.read_bytes()) < fixed + 1500


def test_names_that_kineto_cannot_write_are_spelt() -> None:
    """It drops what is not ASCII and puts quotes into its JSON as they are."""
    assert encode_name("VRT/Stage8 [backward] $x$") == "VRT/Stage8 [backward] $x$"
    assert encode_name('时"\\%') == "%E6%97%B6%22%5C%25"


def test_a_trace_that_ends_in_the_middle_is_read_up_to_there(trace: Path) -> None:
    """What came before counts, and a note says so."""
    text = trace.read_text(encoding="utf-8")
    trace.write_text(text[: text.index("sm90_gemm")], encoding="utf-8")
    profile = read_trace(trace)
    assert profile.operators
    assert "the trace ends in the middle" in profile.notes[0]


@pytest.mark.parametrize("text", ["", "{}", "[1, 2]", "no trace at all"])
def test_another_file_is_no_trace(text: str, tmp_path: Path) -> None:
    """The error names the file."""
    path = tmp_path / "other.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(OutputError, match=r"other\.json: not a Chrome trace"):
        read_trace(path)


def test_a_compressed_trace_and_one_with_older_categories_give_the_same_profile(trace: Path, tmp_path: Path) -> None:
    """``torch.profiler`` writes ``.gz`` when it is asked to; torch before 1.12 called a kernel ``Kernel``."""
    text = trace.read_text(encoding="utf-8")
    compressed = tmp_path / "trace.json.gz"
    compressed.write_bytes(gzip.compress(text.encode()))
    for new, old in {
        "cpu_op": "Operator",
        "cuda_runtime": "Runtime",
        "kernel": "Kernel",
        "gpu_memcpy": "Memcpy",
    }.items():
        text = re.sub(rf'("cat": ?)"{new}"', rf'\1"{old}"', text)
    older = tmp_path / "older.json"
    older.write_text(text, encoding="utf-8")
    assert '"Kernel"' in text
    profile = read_trace(trace)
    for path in (compressed, older):
        assert read_trace(path).kernels == profile.kernels
        assert read_trace(path).operators == profile.operators
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(compressed.read_bytes()[:-20])
    with pytest.raises(OutputError, match="ends in the middle"):
        read_trace(cut)
