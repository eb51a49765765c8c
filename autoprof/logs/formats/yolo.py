"""The console of YOLOv5, YOLOv7 and YOLOv8: ``0/2  3.47G  0.0399  0.0585  0.0214  190  640:  12%|█▎  | 1/8 […]``.

Source of the lines: ``train`` in train.py of ultralytics/yolov5, ``BaseTrainer._do_train`` in
ultralytics/engine/trainer.py of ultralytics/ultralytics: the epoch, the reserved memory, then losses that are means of
the epoch so far, and the bar with its batches.
"""

from __future__ import annotations

from typing import Final

from ._text import TextFormat

FORMAT: Final = TextFormat(
    name="yolo",
    record=r"^\s*\d+/\d+\s+[\d.]+G\s+(?:[\d.]+\s+){3,}\d+:",
    unnamed=(
        (r"^(\d+)/\d+ [\d.]+G ", "epoch"),
        (r"^\d+/\d+ ([\d.]+)G ", "memory"),
        (r"\|\| (\d+)/\d+ \[", "step"),
    ),
    weight=1.3,
)
