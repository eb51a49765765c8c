"""Peak FLOP/s of CUDA and ROCm devices by the exact name that ``torch.cuda.get_device_name`` returns.

They are from makers' data sheets, dense: a figure "with sparsity" is halved. Where a sheet has a figure for
accumulation in 16 bit and one in 32 bit, the latter is taken, because torch accumulates so. A name without a row has no
peak: an H100 PCIe does 0.76 of an H100 SXM, and a slice of a device (MIG) has its own name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ._peaks import Arithmetic, Peak


def _peak(
    form_factor: str, source: str, fp32: float, tf32: float | None, bf16: float | None, fp16: float,
    fp8: float | None = None, note: str = "",
) -> Peak:  # fmt: skip
    given: dict[Arithmetic, float | None] = {"fp32": fp32, "tf32": tf32, "bf16": bf16, "fp16": fp16, "fp8": fp8}
    return Peak(form_factor, {kind: value for kind, value in given.items() if value is not None}, source, note)


_NVIDIA: Final = "https://www.nvidia.com"
_H100: Final = "https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet"
_HALVED: Final = "the sheet's tensor figures are with sparsity: halved"

_A100_SHEET: Final = (
    f"{_NVIDIA}/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
)
_A100_SXM = _peak("SXM4", _A100_SHEET, 19.5, 156, 312, 312)
_A100_PCIE = _peak("PCIe", _A100_SHEET, 19.5, 156, 312, 312)
_V100_SHEET: Final = (
    "https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf"
)
_V100_SXM = _peak("SXM2", _V100_SHEET, 15.7, None, None, 125)
_V100_PCIE = _peak("PCIe", _V100_SHEET, 14, None, None, 112)
_ADA: Final = "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
_GA102: Final = f"{_NVIDIA}/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.1.pdf"
_AMD: Final = "https://www.amd.com/en/products/accelerators/instinct"
_ACCUMULATE: Final = "16-bit and FP8 with FP32 accumulation"

PEAKS: Final[Mapping[str, Peak]] = {
    "NVIDIA B200": _peak(
        "SXM6", "https://resources.nvidia.com/en-us-blackwell-architecture", 75, 2200 / 2, 4500 / 2, 4500 / 2,
        9000 / 2, "the column HGX B200, per GPU; tensor figures with sparsity: halved",
    ),
    "NVIDIA H200": _peak(
        "SXM5", f"{_NVIDIA}/en-us/data-center/h200/", 67, 989 / 2, 1979 / 2, 1979 / 2, 3958 / 2, _HALVED,
    ),
    "NVIDIA H100 80GB HBM3": _peak("SXM5", _H100, 67, 989 / 2, 1979 / 2, 1979 / 2, 3958 / 2, _HALVED),
    "NVIDIA H100 PCIe": _peak("PCIe", _H100, 51, 756 / 2, 1513 / 2, 1513 / 2, 3026 / 2, _HALVED),
    "NVIDIA H100 NVL": _peak(
        "PCIe NVL", f"{_NVIDIA}/en-us/data-center/h100/", 60, 835 / 2, 1671 / 2, 1671 / 2, 3341 / 2, _HALVED,
    ),
    "NVIDIA A100-SXM4-40GB": _A100_SXM,
    "NVIDIA A100-SXM4-80GB": _A100_SXM,
    "NVIDIA A100-PCIE-40GB": _A100_PCIE,
    "NVIDIA A100 80GB PCIe": _A100_PCIE,
    "A100-SXM4-40GB": _A100_SXM,  # drivers before R470 omit the maker's name
    "A100-PCIE-40GB": _A100_PCIE,
    "A100-SXM-80GB": _A100_SXM,
    "NVIDIA A40": _peak(
        "PCIe", f"{_NVIDIA}/en-us/data-center/a40/",
        37.4, 74.8, 149.7, 149.7,
    ),
    "NVIDIA A10": _peak(
        "PCIe", f"{_NVIDIA}/content/dam/en-zz/Solutions/Data-Center/a10/pdf/a10-datasheet.pdf", 31.2, 62.5, 125, 125
    ),
    "NVIDIA A10G": _peak(
        "PCIe", "https://d1.awsstatic.com/product-marketing/ec2/NVIDIA_AWS_A10G_DataSheet_FINAL_02_17_2022.pdf",
        35, 35, 70, 70,
    ),
    "NVIDIA L40": _peak(
        "PCIe", f"{_NVIDIA}/en-us/data-center/l40/",
        90.5, 90.5, 181.05, 181.05, 362,
    ),
    "NVIDIA L40S": _peak(
        "PCIe", f"{_NVIDIA}/en-us/data-center/l40s/", 91.6, 183, 362.05, 362.05, 733
    ),
    "Tesla V100-SXM2-16GB": _V100_SXM,
    "Tesla V100-SXM2-32GB": _V100_SXM,
    "Tesla V100-PCIE-16GB": _V100_PCIE,
    "Tesla V100-PCIE-32GB": _V100_PCIE,
    "Tesla V100S-PCIE-32GB": _peak("PCIe", _V100_SHEET, 16.4, None, None, 130),
    "Tesla T4": _peak(
        "PCIe", f"{_NVIDIA}/content/dam/en-zz/Solutions/Data-Center/tesla-t4/t4-tensor-core-datasheet-951643.pdf",
        8.1, None, None, 65,
    ),
    "NVIDIA GeForce RTX 3090": _peak("PCIe", _GA102, 35.6, 35.6, 71, 71, note=_ACCUMULATE),
    "NVIDIA GeForce RTX 4090": _peak("PCIe", _ADA, 82.6, 82.6, 165.2, 165.2, 330.3, _ACCUMULATE),
    "AMD Instinct MI250X": _peak(
        "OAM", f"{_AMD}/mi200/mi250x.html", 95.7 / 2, None, 383 / 2, 383 / 2,
        note="half of the module: torch sees each of its two dies as a device; FP32 of the matrix cores",
    ),
    "AMD Instinct MI250": _peak(
        "OAM", f"{_AMD}/mi200/mi250.html", 90.5 / 2, None, 362.1 / 2, 362.1 / 2,
        note="half of the module: torch sees each of its two dies as a device; FP32 of the matrix cores",
    ),
}  # fmt: skip
"""Peaks by exact name."""
