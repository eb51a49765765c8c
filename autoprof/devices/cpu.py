"""The CPU, and ``meta``: work of the host itself. Every default of ``Device`` is right for it."""

from __future__ import annotations

from typing import Final

from ._device import HOST_TYPES, Device


class Cpu(Device):
    """The host: its own clock and resident set, no peak."""

    types = HOST_TYPES


DEVICE: Final = Cpu()
