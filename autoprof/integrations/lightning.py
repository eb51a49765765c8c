"""``AutoprofLightningCallback`` for Lightning's ``Trainer``, of ``lightning`` or of ``pytorch_lightning``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..base.process.ranks import launch_name
from ..base.summary import VALIDATION
from ._training import Training

if TYPE_CHECKING:
    from ..session.session import Session
    from ..sinks import Config, Sink

__all__ = ["AutoprofLightningCallback"]


def _callback_classes() -> tuple[type, ...]:
    """Return the base class of each package that the program has imported; of the first one installed, if none."""
    packages = ("lightning.pytorch", "pytorch_lightning")
    loaded = [name for name in packages if name in sys.modules] or [
        next((name for name in packages if find_spec(name.partition(".")[0])), packages[0])
    ]
    return tuple(import_module(f"{name}.callbacks").Callback for name in loaded)


class AutoprofLightningCallback(*_callback_classes()):  # type: ignore[misc]
    """Record each ``trainer.fit()``: ``Trainer(callbacks=[AutoprofLightningCallback()])``.

    ``config`` and ``sinks`` are those of ``autoprof.instrument``. A step is a training batch; with
    ``accumulate_grad_batches`` the batches of one optimizer step. Validation and checkpoint saving are excluded. The
    length of the run, loss and learning rate are those of the trainer.
    """

    def __init__(
        self,
        config: str | os.PathLike[str] | Mapping[str, Any] | Config | None = None,
        *,
        sinks: Iterable[Sink] = (),
    ) -> None:
        super().__init__()
        self._training = Training(config, sinks)
        self._global_step = 0

    @property
    def session(self) -> Session | None:
        """The session of the latest ``trainer.fit()``; None before the first."""
        return self._training.session

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Open the session."""
        self._global_step = trainer.global_step
        self._training.begin(
            trainer.strategy.model or pl_module,
            trainer.optimizers,
            total_steps=_steps_to_go(trainer) if pl_module.automatic_optimization else None,
            run_name=_run_name(trainer),
        )

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """End a step, if an optimizer has stepped."""
        training, global_step = self._training, trainer.global_step
        if not training.is_open or global_step == self._global_step:
            return
        self._global_step = global_step
        training.log(**_scalars(trainer, outputs))
        training.end_step()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Exclude the validation."""
        self._training.exclude(VALIDATION)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """End the excluded time."""
        self._training.include()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Close the session."""
        self._training.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Close the session of a training that an exception or Ctrl-C ended."""
        self._training.fail(exception)


def _scalars(trainer: Any, outputs: Any) -> dict[str, Any]:
    """Return loss, learning rate and epoch of a step; Lightning divides the loss by the batches of the step."""
    scalars: dict[str, Any] = {"epoch": trainer.current_epoch}
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
    if loss is not None and trainer.accumulate_grad_batches == 1:
        scalars["loss"] = loss
    with suppress(Exception):  # an optimizer of another kind than torch's
        scalars["lr"] = float(trainer.optimizers[0].param_groups[0]["lr"])
    return scalars


def _steps_to_go(trainer: Any) -> float | None:
    """Return the optimizer steps of the run; None where its length is not known."""
    try:
        total = float(trainer.estimated_stepping_batches)
    except Exception:  # Lightning's own, where the accumulation changes from epoch to epoch
        return None
    return None if total < 0 else total - float(trainer.global_step)


def _run_name(trainer: Any) -> str | None:
    """Return the name that the ranks give to the run where this process started the others; None for the usual one.

    The other ranks name the run by their parent process, which is this one.
    """
    return launch_name(os.getpid()) if getattr(trainer.strategy.launcher, "procs", None) else None
