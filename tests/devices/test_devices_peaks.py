"""MFU and HFU are held against the peak of exactly this device and this arithmetic, or there is no figure."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from autoprof.base.frame import Phase
from autoprof.devices import Tf32Flags, find_peak
from autoprof.devices._cuda_peaks import PEAKS
from autoprof.devices.cuda import tf32_flags
from autoprof.probes.metrics.flops import FlopCount, FlopKey, Kind
from autoprof.probes.metrics.utilization import arithmetic, utilization

BF16, FP32, CONV = Kind("bfloat16", "matmul"), Kind("float32", "matmul"), Kind("float32", "conv")
OFF, ON = Tf32Flags(False, False), Tf32Flags(True, True)
SECOND = 1_000_000_000


def work(*rows: tuple[str, Phase, Kind, float]) -> FlopCount:
    """Build a count of these rows, in 10^12 operations."""
    return FlopCount({FlopKey(fqn, phase, kind): int(tera * 1e12) for fqn, phase, kind, tera in rows})


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("NVIDIA H100", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A100-SXM4-40GB"),
        ("nvidia h100 pcie", None),
        ("NVIDIA L40G", "NVIDIA L40"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 4090"),
    ],
)
def test_a_name_that_is_not_exactly_known_has_no_peak(name, nearest):
    """Neither part of a name, nor another spelling, nor a slice of a device; the nearest is named, not used."""
    peak, reason = find_peak(name, PEAKS)
    assert peak is None
    assert reason.startswith(f"no peak is known for '{name}'")
    if nearest:
        assert nearest in reason


def test_tf32_needs_its_flag_and_a_device_that_has_it():
    """One flag for products of matrices, one for convolutions; a V100 has no TF32 whatever they say."""
    a100, v100 = PEAKS["NVIDIA A100 80GB PCIe"], PEAKS["Tesla V100-SXM2-16GB"]
    assert arithmetic(FP32, OFF, a100) == "fp32"
    assert arithmetic(FP32, Tf32Flags(True, False), a100) == "tf32"
    assert arithmetic(CONV, Tf32Flags(True, False), a100) == "fp32"
    assert arithmetic(CONV, Tf32Flags(False, True), a100) == "tf32"
    assert arithmetic(CONV, ON, v100) == "fp32"
    assert arithmetic(BF16, ON, v100) is None
    assert arithmetic(Kind("float64", "matmul"), ON, a100) is None


def test_mfu_leaves_recompute_out_and_hfu_counts_it():
    """A step of 1 s on an A100 that does 78 + 78 for the model and 39 again."""
    count = work(("a", Phase.FORWARD, BF16, 78), ("a", Phase.BACKWARD, BF16, 78), ("a", Phase.RECOMPUTE, BF16, 39))
    found = utilization(count, SECOND, PEAKS["NVIDIA A100 80GB PCIe"], OFF)
    assert found.mfu == pytest.approx(0.5)
    assert found.hfu == pytest.approx(0.625)
    assert found.model_flops_per_s == 156e12
    assert found.reason is None


def test_each_arithmetic_is_held_against_its_own_peak():
    """The time that the device would need at its peak, over the time taken."""
    count = work(("a", Phase.FORWARD, BF16, 31.2), ("b", Phase.FORWARD, FP32, 1.95), ("c", Phase.FORWARD, CONV, 15.6))
    found = utilization(count, SECOND, PEAKS["NVIDIA A100 80GB PCIe"], Tf32Flags(False, True))
    assert found.mfu == pytest.approx(0.1 + 0.1 + 0.1)


@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.RECOMPUTE])
def test_more_than_the_peak_is_refused(phase):
    """152 % is not a figure; FLOP/s are still given."""
    found = utilization(work(("a", phase, BF16, 312 * 1.52)), SECOND, PEAKS["NVIDIA A100 80GB PCIe"], OFF)
    assert (found.mfu, found.hfu) == (None, None)
    assert found.reason == "1.52 of the peak is impossible: a type, a count or a time is wrong"
    assert found.model_flops_per_s is not None


def test_arithmetic_without_a_peak_gives_no_figure():
    """Part of the work in float64: the rest alone would be too small a figure."""
    count = work(("a", Phase.FORWARD, BF16, 1), ("b", Phase.BACKWARD, Kind("float64", "matmul"), 1))
    found = utilization(count, SECOND, PEAKS["NVIDIA A100 80GB PCIe"], OFF)
    assert (found.mfu, found.reason) == (None, "no peak of the device is known for float64")


def backends(matmul: bool, conv: bool) -> SimpleNamespace:
    """Return the two switches as ``torch.backends`` has them."""
    return SimpleNamespace(
        cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=matmul)), cudnn=SimpleNamespace(allow_tf32=conv)
    )


def test_the_flags_of_torch_are_read():
    """By default convolutions may be rounded, products of matrices not; on ROCm no convolution is."""
    assert tf32_flags(torch.backends) == Tf32Flags(matmul=False, conv=True)
    assert tf32_flags(backends(matmul=True, conv=False)) == Tf32Flags(matmul=True, conv=False)
    assert tf32_flags(backends(matmul=True, conv=True), rocm=True) == Tf32Flags(matmul=True, conv=False)


class Mixed:
    """Settings made in the new way: asking in the old one raises, as torch does."""

    def __init__(self, precision):
        self.fp32_precision = precision
        self.conv = self

    @property
    def allow_tf32(self):
        raise RuntimeError("mix of the legacy and new APIs")


def test_flags_set_in_the_new_way_are_read_in_the_new_way():
    """torch raises when the old flag is read after the new setting was used."""

    class Backends:
        class cuda:
            matmul = Mixed("tf32")

        cudnn = Mixed("ieee")

    assert tf32_flags(Backends) == Tf32Flags(matmul=True, conv=False)


def rows() -> list[str]:
    """Write the table of the page."""
    kinds = ("fp32", "tf32", "bf16", "fp16", "fp8")
    found = ["| device | form | " + " | ".join(kinds) + " |", "|---|---|" + "---:|" * len(kinds)]
    for name, peak in PEAKS.items():
        figures = (f"{peak.tflops[kind]:g}" if kind in peak.tflops else "" for kind in kinds)
        found.append(f"| {name} | {peak.form_factor} | {' | '.join(figures)} |")
    return found


def test_the_page_shows_the_table():
    """docs/flops.md is true."""
    page = (Path(__file__).parents[2] / "docs" / "flops.md").read_text(encoding="utf-8")
    assert "\n".join(rows()) in page
