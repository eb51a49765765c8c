"""Let torchvision be imported where its compiled operators cannot be loaded.

The wheels of torchvision on PyPI are linked to the CUDA build of torch. Beside a CPU build their library does not load,
and the import fails for want of one operator, ``nms``. It is defined here in Python; ``roi_align``, the other one that
the models need, torchvision has in Python itself.
"""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_defined: list[Any] = []


def provide() -> None:
    """Define what is missing, once; with torchvision's own operators do nothing."""
    if _defined or _loads():
        return
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")  # asked for, never called
    library.impl("nms", _nms, "CPU")
    _defined.append(library)
    from torchvision.ops import boxes

    module = importlib.import_module("torchvision.ops.roi_align")
    boxes._assert_has_ops = module._assert_has_ops = lambda: None
    module._roi_align = module._roi_align.__wrapped__  # or torchvision would compile it at its first call


def _loads() -> bool:
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("the zoo needs torchvision: make test-zoo installs it")
    try:
        for library in Path(found.origin).parent.glob("_C*.so"):
            torch.ops.load_library(str(library))
    except OSError:
        return False
    return True


def _nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Keep, from the best score down, each box that overlaps none kept before by more than the threshold."""
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    order = scores.argsort(descending=True, stable=True)
    kept = []
    while len(order):
        best, order = order[0], order[1:]
        kept.append(best)
        low = torch.maximum(boxes[best, :2], boxes[order, :2])
        high = torch.minimum(boxes[best, 2:], boxes[order, 2:])
        inside = (high - low).clamp(min=0).prod(1)
        order = order[inside / (area[best] + area[order] - inside) <= iou_threshold]
    return torch.stack(kept) if kept else torch.empty(0, dtype=torch.long)
