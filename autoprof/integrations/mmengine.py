"""``AutoprofHook`` for the ``Runner`` of mmengine, and for the projects of OpenMMLab that train with it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING, Any

from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner

from ._training import VALIDATION, Training, close_with

if TYPE_CHECKING:
    from .._session.session import Session
    from ..config import Config
    from ..sinks import Sink

__all__ = ["AutoprofHook"]


@HOOKS.register_module()
class AutoprofHook(Hook):
    """Record each ``runner.train()``: ``custom_hooks = [dict(type="AutoprofHook")]``.

    ``config`` and ``sinks`` are those of ``autoprof.instrument``. A step is an iteration; with ``accumulative_counts``
    the iterations of one optimizer step. Validation and checkpoint saving are excluded. The length of the run, losses
    and learning rate are those of the runner.
    """

    priority = "VERY_LOW"

    def __init__(
        self,
        config: str | os.PathLike[str] | Mapping[str, Any] | Config | None = None,
        *,
        sinks: Iterable[Sink] = (),
    ) -> None:
        self._training = Training(config, sinks)
        close_with(Runner, "train", self, self._training)

    @property
    def session(self) -> Session | None:
        """The session of the latest ``runner.train()``; None before the first."""
        return self._training.session

    def before_train(self, runner: Any) -> None:
        """Open the session."""
        wrapper, loop = runner.optim_wrapper, runner.train_loop
        each = getattr(wrapper, "_accumulative_counts", 1)
        inside = wrapper.values() if isinstance(wrapper, Mapping) or hasattr(wrapper, "optim_wrappers") else (wrapper,)
        self._training.begin(
            runner.model,
            [one.optimizer for one in inside],
            total_steps=ceil(loop.max_iters / each) - ceil(loop.iter / each),
            epoch_batches=_length(runner.train_dataloader),
            saves=(Runner, ("save_checkpoint",)),
        )

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        """End a step, if the optimizer has stepped."""
        wrapper = runner.optim_wrapper
        if not self._training.is_open or not getattr(wrapper, "should_update", _always)():
            return
        scalars = {name: value for name, value in (outputs or {}).items() if getattr(value, "ndim", 0) == 0}
        with suppress(Exception):
            rates = wrapper.get_lr()
            scalars["lr"] = rates["lr"][0] if "lr" in rates else next(iter(rates.values()))[0]
        self._training.log(epoch=runner.epoch, **scalars)
        self._training.end_step()

    def before_val(self, runner: Any) -> None:
        """Exclude the validation."""
        self._training.exclude(VALIDATION)

    def after_val(self, runner: Any) -> None:
        """End the excluded time."""
        self._training.include()

    def after_train(self, runner: Any) -> None:
        """Close the session."""
        self._training.end()


def _always() -> bool:
    return True


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:  # an iterable data set has no length
        return None
