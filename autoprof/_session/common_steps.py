"""Choose steps by their numbers alone, so that all ranks record the same ones without a message.

Steps are counted in blocks. A run at ``rate`` records block b where the fractional part of b · φ (the golden ratio) is
below ``rate``. The blocks of a lower rate are then a subset of those of a higher one: ranks whose rates differ share
the steps of the lowest. The blocks recorded are spread evenly, and no period of the training is always missed: the
multiples of an irrational number meet every phase of it.

Some blocks are recorded without their last steps, at every rate: these unsampled steps are compared with the recorded
ones beside them.
"""

from __future__ import annotations

from typing import Final

BLOCK_STEPS: Final = 12
"""Steps that are recorded or skipped together: attaching and detaching hooks costs as much as a step, and the first
ones of a burst are excluded."""
CONTROL_STEPS: Final = 2
"""The last steps of some blocks, never recorded."""
WHOLE_BLOCKS: Final = 8
"""The first blocks, which are recorded whole: a run that ends in them has too few pairs to compare anyway, and a delay
that occurs once cannot be seen in an unsampled step."""
START_BLOCKS: Final = 16
"""The first blocks, of which all others have unsampled steps at their end; …"""
CONTROL_SHARE: Final = 1 / 6
"""… later, this part of them has."""
MIN_RATE: Final = 2.0**-12
"""The lowest rate: blocks further apart would not be found in the run of a day."""
GOLDEN: Final = 0x9E3779B97F4A7C15
"""The fractional part of φ, times 2^64. In integers the choice is the same on every machine."""
ROOT_OF_2: Final = 0x6A09E667F3BCC909
"""The fractional part of √2, times 2^64: it chooses the blocks with unsampled steps independently of the others."""
WHOLE: Final = 2**64


class CommonSteps:
    """The steps to record at a rate. ``every``: of each so many steps one is considered at all."""

    def __init__(self, every: int = 1) -> None:
        self._every = every

    @property
    def block_steps(self) -> int:
        """The length of a block, in steps of the training."""
        return BLOCK_STEPS * self._every

    def records(self, step: int, rate: float) -> bool:
        """Return whether a step is recorded at this rate; the first step has the number 1."""
        count, rest = divmod(step - 1, self._every)
        block, place = divmod(count, BLOCK_STEPS)
        return not rest and not _is_control(block, place) and is_recorded(block, rate)

    def goes_on(self, step: int) -> bool:
        """Return whether the step to consider after this one is in the same block, and no control."""
        block, place = divmod((step - 1) // self._every, BLOCK_STEPS)
        return place + 1 < BLOCK_STEPS and not _is_control(block, place + 1)

    def skip(self, step: int, rate: float) -> int:
        """Return the number of steps between this step and the next recorded one."""
        count = (step - 1) // self._every + 1
        block, place = divmod(count, BLOCK_STEPS)
        if _is_control(block, place) or not is_recorded(block, rate):
            block, place = block + 1, 0
            while not is_recorded(block, rate):
                block += 1
        return (block * BLOCK_STEPS + place) * self._every - step


def is_recorded(block: int, rate: float) -> bool:
    """Return whether a block is recorded at this rate."""
    return rate >= 1.0 or block * GOLDEN % WHOLE < max(rate, MIN_RATE) * WHOLE


def _is_control(block: int, place: int) -> bool:
    """Return whether this step of a block is never recorded."""
    if place < BLOCK_STEPS - CONTROL_STEPS:
        return False
    if block < START_BLOCKS:
        return block >= WHOLE_BLOCKS
    return block * ROOT_OF_2 % WHOLE < CONTROL_SHARE * WHOLE
