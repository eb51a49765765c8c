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
    form: str, fp32: float, tf32: float | None, bf16: float | None, fp16: float, fp8: float | None = None
) -> Peak:
    given: dict[Arithmetic, float | None] = {"fp32": fp32, "tf32": tf32, "bf16": bf16, "fp16": fp16, "fp8": fp8}
    return Peak(form, {kind: value for kind, value in given.items() if value is not None})


PEAKS: Final[Mapping[str, Peak]] = {
    # https://resources.nvidia.com/en-us-blackwell-architecture, the column HGX B200 per GPU
    "NVIDIA B200": _peak("SXM6", 75, 2200 / 2, 4500 / 2, 4500 / 2, 9000 / 2),
    # https://www.nvidia.com/en-us/data-center/h200/
    "NVIDIA H200": _peak("SXM5", 67, 989 / 2, 1979 / 2, 1979 / 2, 3958 / 2),
    # https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet, and of the NVL
    # https://www.nvidia.com/en-us/data-center/h100/
    "NVIDIA H100 80GB HBM3": _peak("SXM5", 67, 989 / 2, 1979 / 2, 1979 / 2, 3958 / 2),
    "NVIDIA H100 PCIe": _peak("PCIe", 51, 756 / 2, 1513 / 2, 1513 / 2, 3026 / 2),
    "NVIDIA H100 NVL": _peak("PCIe NVL", 60, 835 / 2, 1671 / 2, 1671 / 2, 3341 / 2),
    # nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf; drivers before R470 omit the maker's name
    "NVIDIA A100-SXM4-40GB": _peak("SXM4", 19.5, 156, 312, 312),
    "NVIDIA A100-SXM4-80GB": _peak("SXM4", 19.5, 156, 312, 312),
    "NVIDIA A100-PCIE-40GB": _peak("PCIe", 19.5, 156, 312, 312),
    "NVIDIA A100 80GB PCIe": _peak("PCIe", 19.5, 156, 312, 312),
    "A100-SXM4-40GB": _peak("SXM4", 19.5, 156, 312, 312),
    "A100-PCIE-40GB": _peak("PCIe", 19.5, 156, 312, 312),
    "A100-SXM-80GB": _peak("SXM4", 19.5, 156, 312, 312),
    # https://www.nvidia.com/en-us/data-center/a40/, a10-datasheet.pdf, NVIDIA_AWS_A10G_DataSheet_FINAL_02_17_2022.pdf
    "NVIDIA A40": _peak("PCIe", 37.4, 74.8, 149.7, 149.7),
    "NVIDIA A10": _peak("PCIe", 31.2, 62.5, 125, 125),
    "NVIDIA A10G": _peak("PCIe", 35, 35, 70, 70),
    # https://www.nvidia.com/en-us/data-center/l40/ and …/l40s/
    "NVIDIA L40": _peak("PCIe", 90.5, 90.5, 181.05, 181.05, 362),
    "NVIDIA L40S": _peak("PCIe", 91.6, 183, 362.05, 362.05, 733),
    # volta-v100-datasheet-update-us-1165301-r5.pdf, t4-tensor-core-datasheet-951643.pdf
    "Tesla V100-SXM2-16GB": _peak("SXM2", 15.7, None, None, 125),
    "Tesla V100-SXM2-32GB": _peak("SXM2", 15.7, None, None, 125),
    "Tesla V100-PCIE-16GB": _peak("PCIe", 14, None, None, 112),
    "Tesla V100-PCIE-32GB": _peak("PCIe", 14, None, None, 112),
    "Tesla V100S-PCIE-32GB": _peak("PCIe", 16.4, None, None, 130),
    "Tesla T4": _peak("PCIe", 8.1, None, None, 65),
    # nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.1.pdf, nvidia-ada-gpu-architecture.pdf
    "NVIDIA GeForce RTX 3090": _peak("PCIe", 35.6, 35.6, 71, 71),
    "NVIDIA GeForce RTX 4090": _peak("PCIe", 82.6, 82.6, 165.2, 165.2, 330.3),
    # https://www.amd.com/en/products/accelerators/instinct/mi200, FP32 of the matrix cores: torch sees each of the two
    # dies of a module as a device
    "AMD Instinct MI250X": _peak("OAM", 95.7 / 2, None, 383 / 2, 383 / 2),
    "AMD Instinct MI250": _peak("OAM", 90.5 / 2, None, 362.1 / 2, 362.1 / 2),
}
"""Peaks by exact name, each below its source."""
