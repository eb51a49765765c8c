"""Progress bars whose loss is a mean: of pytorch_lightning 1, RWKV-LM, gaussian-splatting, CenterNet and pytorch-cifar.

Source of the lines: ``ProgressBarBase.get_metrics`` in pytorch_lightning/callbacks/progress/base.py of the versions 1.x
(``loss`` before ``v_num`` is the mean of 20 steps), ``train_callback`` in RWKV-v5/src/trainer.py of BlinkDL/RWKV-LM (of
the epoch so far), ``training`` in train.py of graphdeco-inria/gaussian-splatting (0.4 of the new value),
``run_epoch`` in src/lib/trains/base_trainer.py of xingyizhou/CenterNet and ``progress_bar`` in utils.py of
kuangliu/pytorch-cifar (of the epoch so far; the time of the latter may be that of a test batch).
"""

from __future__ import annotations

from typing import Final

from ..line_forms import FormatHints
from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="progress bars",
    record=(
        r"[\[,] ?loss=[^,\]]+, v_num=|\bREAL it/s=|\bTraining progress:.*\bLoss=|"
        r"\|Tot: [\d:]+ \|ETA: [\d:]+ ?\|loss |\bStep: \S+ \| Tot: \S+ \| Loss: "
    ),
    hints=FormatHints(
        qualifiers={"loss": "mean of several steps"},
        rename={"real_it_s": "steps_per_s", "kt_s": "", "step": "", "tot": "", "net": ""},
    ),
    weight=1.3,
)
