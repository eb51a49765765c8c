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

from ..summary import VALIDATION
from ._training import Training, close_with, length_of

if TYPE_CHECKING:
    from .._session.session import Session
    from ..sinks import Config, Sink

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
        loop, each = runner.train_loop, getattr(runner.optim_wrapper, "_accumulative_counts", 1)
        self._training.begin(
            runner.model,
            [wrapper.optimizer for wrapper in _wrappers(runner.optim_wrapper)],
            total_steps=ceil(loop.max_iters / each) - ceil(loop.iter / each),
            epoch_batches=length_of(runner.train_dataloader),
            saves=(Runner, ("save_checkpoint",)),
        )

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        """End a step, if the optimizer has stepped."""
        if self._training.is_open and _has_updated(runner.optim_wrapper):
            self._training.log(**_scalars(runner, outputs))
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


def _wrappers(wrapper: Any) -> list[Any]:
    """Return the wrappers of the optimizers: one, or those of an ``OptimWrapperDict``."""
    return [*wrapper.optim_wrappers.values()] if hasattr(wrapper, "optim_wrappers") else [wrapper]


def _has_updated(wrapper: Any) -> bool:
    """Return whether this iteration ended with an optimizer step; with several optimizers, it always counts as one."""
    if hasattr(wrapper, "optim_wrappers") or not hasattr(wrapper, "should_update"):
        return True
    return bool(wrapper.should_update())


def _scalars(runner: Any, outputs: Any) -> dict[str, Any]:
    """Return the losses, the learning rate of the first group, and the epoch."""
    scalars = {"epoch": runner.epoch}
    with suppress(Exception):  # a loop or an optimizer wrapper of the project's own
        scalars.update({name: value for name, value in outputs.items() if getattr(value, "ndim", 0) == 0})
    with suppress(Exception):
        scalars["lr"] = next(iter(runner.optim_wrapper.get_lr().values()))[0]
    return scalars
