"""From where on something stands out: every bound of the rules, with its reason.

Shares are of the step's time. A bound without a source is a choice: what a perfect cure could win must be worth a
person's time. They are no settings: a verdict that depends on who asked is none.
"""

from __future__ import annotations

from typing import Final

MIN_STEPS: Final = 10
"""Recorded steps before any rule speaks: the first steps pay for allocations and lazy initialisation."""
MARGIN: Final = 0.1
"""What lies within a tenth of a bound is called near it, not above or below: two runs of one program differ by some
percent, and then one of them says "near", never one "above" and the other "below"."""
CRITICAL: Final = 3.0
"""A share so many times its bound, and at least ``CRITICAL_SHARE`` of the step, is critical, not a warning."""
CRITICAL_SHARE: Final = 0.3
"""Where nearly a third of every step is lost, nothing else is worth looking at first."""

DATA_SHARE: Final = 0.10
"""A loader that keeps up is waited for by microseconds; a tenth of the step is a machine idle one hour in ten."""
H2D_SHARE: Final = 0.05
"""A copy from pinned memory runs beside the computation (torch's tuning guide); exposed, it should hardly be seen."""
RECOMPUTE_SHARE: Final = 0.05
"""Checkpointing all of a model costs about one more forward, a quarter to a third of the step (Chen et al. 2016,
arXiv:1604.06174, speak of 30 %); below a twentieth only small parts are checkpointed."""
OPTIMIZER_SHARE: Final = 0.15
"""A step of Adam reads and writes a handful of tensors of the parameters' size once; forward and backward use each
parameter for every sample. Where that is not far longer, the optimizer is slow or the batch is small."""
STATE_SHARE: Final = 0.3
"""State over the peak: Adam's is twice the parameters, half of what a model without activations takes; from about a
third on its 8-bit form frees a fifth of the peak."""
STATE_FILLED: Final = 0.6
"""And the peak over the memory there is: where less is taken, what is free is there already."""
COMM_SHARE: Final = 0.10
"""Gradients are reduced while backward goes on (Li et al. 2020, arXiv:2006.15704); what is exposed is the rest."""
LOGGING_SHARE: Final = 0.05
"""Logging wins nothing for the model: what it costs is all to be won."""
SYNC_SHARE: Final = 0.05
"""What a reading of values costs is not the wait, for meanwhile the device works, but the gap that follows."""
RECOMPILE_SHARE: Final = 0.05
"""A compiled model is compiled in its first steps; what compiles later compiles for shapes that may not come again."""
RECOMPILES: Final = 3
"""Twice is how torch finds out that a shape is dynamic: the first shape, then any."""
STRAGGLER_SHARE: Final = 0.05
"""What one rank takes longer all ranks lose: a twentieth of the step on 8 GPUs is nearly half a GPU."""
LAUNCH_SHARE: Final = 0.30
"""A queue runs dry at every reading of the loss; for three tenths of the step it does so where the host is slow."""
BUSY: Final = 0.95
"""NVML's utilisation from which on a device does not stand still for launches: its sampling tells no gap from none."""

BACKWARD_RATIO: Final = 2.0
"""Backward over forward in theory: two products for one, for the gradients of the input and of the weights (Kaplan
et al. 2020, arXiv:2001.08361, section 2.1)."""
BACKWARD_HIGH: Final = 3.0
"""Half as much again as in theory is more than memory traffic explains."""
BACKWARD_SHARE: Final = 0.2
"""A lopsided backward that takes less of the step than this is not worth a word."""

HOT_SHARE: Final = 0.5
"""A module that takes half of the step decides alone how long it is."""
HOT_TIMES: Final = 3.0
"""And takes so many times as long as the longest one beside it: else the model is merely unequal."""

PRECISION_SHARE: Final = 0.25
"""Time at float32's own peak over the step: the step is longer than its peak by what is no arithmetic, so from a
quarter on arithmetic is a good part of it."""
ATTENTION_SHARE: Final = 0.10
"""The products of scores and weights over the forward's work. In a transformer of width d they are n / (6 d + n) of it
for n tokens: a tenth at two thirds of the width, where the scores are as large as what flows between the layers."""
CONVOLUTION_SHARE: Final = 0.3
"""Convolutions over all counted work: where they are less, a faster algorithm moves little."""
TINY_SAMPLE_NS: Final = 10_000
"""What a sample costs the loader, from which down a good part of it is Python's way to it: 1 to 4 µs were measured on a
CPU for datasets that only index, collation included, 0.2 µs for one that reads a whole batch at once."""

JITTER_SHARE: Final = 0.10
"""What long steps add to the mean over the median."""
JITTER_TIMES: Final = 2.0
"""A step is an outlier from so many times the median on."""
JITTER_STEPS: Final = 3
"""Outliers that make a habit: two may be one stall of the machine that lies across two steps."""

COLLECTED: Final = 0.75
"""Part of the outliers in which a full collection ran, for it to be their cause; and twice that of the other steps."""

CLOCK_DROP: Final = 0.8
"""Part of the usual clock: boost clocks wander by some percent, throttling takes a fifth and more."""
GROWTH_SHARE: Final = 0.05
"""How much larger the last third's least reading must be than the first third's."""
GROWTH_BYTES: Final = 16 * 2**20
"""And by how many bytes: arenas of the C library come and go by megabytes."""
GROWTH_STEADY: Final = 1 / 3
"""The later half of the growth over the earlier one: caches that fill slow down, a leak does not."""
GROWTH_READINGS: Final = 12
"""Readings needed, four for each third."""
PRESSURE_SHARE: Final = 0.9
"""Peak over capacity: above it one longer sample may end the run."""
RETRIES: Final = 3
"""Times that the allocator gave its cache back to get memory: each waits for the device. One or two may be the first
steps', which try kernels out."""
FRAGMENTED_SHARE: Final = 0.25
"""Reserved but never used at once, over reserved."""
FRAGMENTED_BYTES: Final = 512 * 2**20
"""Less than that is the allocator's ordinary rounding."""
OVERHEAD_STEPS: Final = 50
"""Steps after which the governor has to have settled."""
