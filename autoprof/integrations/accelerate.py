"""``AutoprofTracker`` for the ``Accelerator`` of accelerate, and for the training scripts that it drives."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from accelerate import Accelerator
from accelerate.tracking import GeneralTracker
from torch import nn
from torch.optim import optimizer as torch_optimizer

from .._core.failures import contain, describe
from .._launch.models import calling_frame, join_models
from .._process import lifecycle
from .._process.ranks import rank, world_size
from ._training import Training, length_of

if TYPE_CHECKING:
    from .._session.session import Session
    from ..sinks import Config, Sink

__all__ = ["AutoprofTracker"]


class AutoprofTracker(GeneralTracker):
    """Record the training of an accelerator: ``Accelerator(log_with=[AutoprofTracker()])``.

    The session opens with ``accelerator.init_trackers(…)`` if ``prepare`` was called before, else after the first
    optimizer step, and so in every rank of several. It closes with ``accelerator.end_training()``. ``config`` and
    ``sinks`` are those of ``autoprof.instrument``. A step is an optimizer step. The length of the run is
    ``total_steps``, or one of the keys ``max_train_steps``, ``total_steps``, ``num_training_steps``, ``max_steps`` in
    the configuration of ``init_trackers``. Validation and the writing of checkpoints are excluded.
    """

    name = "autoprof"
    requires_logging_directory = False
    main_process_only = False

    def __init__(
        self,
        config: str | os.PathLike[str] | Mapping[str, Any] | Config | None = None,
        *,
        sinks: Iterable[Sink] = (),
        total_steps: int | None = None,
    ) -> None:
        super().__init__()
        self._training = Training(config, sinks, manual=False)
        self._total = total_steps
        self._waits, self._searches = False, 0
        if rank() > 0:  # accelerate calls the trackers of the first rank only
            self._wait()

    @property
    def tracker(self) -> Session | None:
        """The session; None before it is open."""
        return self._training.session

    @property
    def session(self) -> Session | None:
        """The session; None before it is open."""
        return self._training.session

    def start(self) -> None:
        """Open the session, now or after the first optimizer step."""
        if self._training.is_open or self._waits:
            return
        accelerator = _accelerator_of(self) if world_size() == 1 else None
        if accelerator is not None and accelerator._models and accelerator._optimizers:
            self._open(accelerator, self._total)
        else:
            self._wait()

    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Read the length of the run from the script's configuration."""
        # The keys of a script's configuration that hold the optimizer steps of the run, as the examples name them.
        found = (values.get(name) for name in ("max_train_steps", "total_steps", "num_training_steps", "max_steps"))
        total = next((one for one in found if isinstance(one, int) and one > 0), None)
        self._total = self._total or total
        self.start()  # accelerate before version 1.8 has no such event
        if self._training.is_open:
            self._training.set_total(self._total)

    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Attach the numbers to the open step."""
        self._training.log_all(values)

    def finish(self) -> None:
        """Close the session."""
        self._stop_waiting()
        self._training.end()

    def _wait(self) -> None:
        """Open the session after the next optimizer step."""
        self._waits = True
        lifecycle.prefer_program()
        torch_optimizer.register_optimizer_step_post_hook(self._optimizer_stepped)

    def _optimizer_stepped(self, optimizer: Any, *_call: Any) -> None:
        """Called after each optimizer step until an optimizer of the accelerator steps."""
        hooks = torch_optimizer._global_optimizer_post_hooks
        if next(reversed(hooks.values())) != self._optimizer_stepped:  # torch reads them, and a session adds some
            return
        with contain(self._give_up):
            self._searches += 1
            accelerator = _accelerator_of(self)
            if accelerator is not None and accelerator._models:
                self._stop_waiting()
                self._open(accelerator, None if self._total is None else self._total - 1)
            # Optimizer steps after which the accelerator is looked for, among all objects of the process.
            elif self._searches >= 3:
                self._stop_waiting()

    def _stop_waiting(self) -> None:
        self._waits = False
        hooks = torch_optimizer._global_optimizer_post_hooks
        for key in [key for key, hook in hooks.items() if hook == self._optimizer_stepped]:
            del hooks[key]

    def _give_up(self, error: Exception) -> None:
        import logging

        self._stop_waiting()
        logging.getLogger(__name__).warning("autoprof: this training is not recorded: %s", describe(error))

    def _open(self, accelerator: Any, total_steps: int | None) -> None:
        models = _trained(accelerator)
        loaders = accelerator._dataloaders
        self._training.begin(
            join_models(models, calling_frame()),
            accelerator._optimizers,
            total_steps=total_steps,
            epoch_batches=length_of(loaders[0]) if len(loaders) == 1 else None,
        )


def _accelerator_of(tracker: AutoprofTracker) -> Any:
    """Return the accelerator that reports to this tracker: a tracker is given none."""
    for one in gc.get_objects():
        if Accelerator in type(one).__mro__ and any(
            other is tracker for other in (*vars(one).get("trackers", ()), *vars(one).get("log_with", ()))
        ):
            return one
    return None


def _trained(accelerator: Any) -> list[nn.Module]:
    """Return the prepared models with parameters that a prepared optimizer holds; all of them if none is known."""
    groups = [group for optimizer in accelerator._optimizers for group in getattr(optimizer, "param_groups", ())]
    trained = {id(parameter) for group in groups for parameter in group["params"]}
    models = list(accelerator._models)
    return [model for model in models if any(id(one) in trained for one in model.parameters())] or models
