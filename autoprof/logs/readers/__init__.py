"""The registry: every kind of log that is known, one file a kind. A file is told by what is in it, not by its name."""

from __future__ import annotations

from typing import Final

from ..source import Source
from .autoprof import AUTOPROF
from .base import Raw, Reader
from .csv import Csv
from .deepspeed import DEEPSPEED
from .detectron2 import DETECTRON2, METRICS_JSON
from .document import Document
from .fairseq import FAIRSEQ
from .global_timer import GlobalTimer
from .llamafactory import LLAMA_FACTORY
from .megatron import MEGATRON
from .mmengine import MMENGINE, SCALARS
from .nanogpt import NANOGPT
from .objects import JsonFormat
from .pattern import Pattern
from .plain import TEXT, TEXT_WITHOUT_STEPS
from .timing_log import TimingLog
from .torchtitan import TORCHTITAN

__all__ = ["READERS", "Pattern", "Raw", "Reader", "detect"]

READERS: Final[tuple[Reader, ...]] = (
    AUTOPROF, LLAMA_FACTORY, METRICS_JSON, SCALARS, Document(), JsonFormat("jsonl"), Csv(), TimingLog(), GlobalTimer(),
    TORCHTITAN, MEGATRON, DEEPSPEED, MMENGINE, DETECTRON2, FAIRSEQ, NANOGPT, TEXT, TEXT_WITHOUT_STEPS,
)  # fmt: skip


_LINES: Final = 800


def detect(source: Source) -> Reader | None:
    """Return the reader that finds the most records in a sample of the file, None where none finds any."""
    sample = source.sample()
    if len(sample) > 3 * _LINES:  # from the three places that it is from
        middle = len(sample) // 2
        sample = [*sample[:_LINES], *sample[middle : middle + _LINES], *sample[-_LINES:]]
    scores = [(reader.score(sample), -at) for at, reader in enumerate(READERS)]
    best, at = max(scores)
    return READERS[-at] if best > 0 else None
