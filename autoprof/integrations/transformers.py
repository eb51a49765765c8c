"""``AutoprofCallback`` for the ``Trainer`` of transformers, and for trainers derived from it, as those of TRL."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..base.process.ranks import world_size
from ..base.summary import VALIDATION
from ..frontends.launch.models import find_wrapper
from ._training import SAVING, Training

if TYPE_CHECKING:
    from ..session.session import Session
    from ..sinks import Config, Sink

__all__ = ["AutoprofCallback"]


class AutoprofCallback(TrainerCallback):
    """Record each ``trainer.train()``: ``Trainer(…, callbacks=[AutoprofCallback()])``.

    ``config`` and ``sinks`` are those of ``autoprof.instrument``. A step is an optimizer step of the trainer.
    Evaluation and checkpoint saving are excluded. The length of the run, loss, learning rate, metrics and tokens
    (with ``include_num_input_tokens_seen``) are those of the trainer.
    """

    def __init__(
        self,
        config: str | os.PathLike[str] | Mapping[str, Any] | Config | None = None,
        *,
        sinks: Iterable[Sink] = (),
    ) -> None:
        self._training = Training(config, sinks)
        self._expects_log = self._ends_step = False
        self._tokens = 0

    @property
    def session(self) -> Session | None:
        """The session of the latest ``trainer.train()``; None before the first."""
        return self._training.session

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        optimizer: Any = None,
        **kwargs: Any,
    ) -> None:
        """Open the session."""
        if model is None:
            return
        self._expects_log = self._ends_step = False
        self._tokens = state.num_input_tokens_seen
        self._training.begin(
            find_wrapper(model),
            () if optimizer is None else (optimizer,),
            total_steps=state.max_steps - state.global_step,
        )
        if getattr(args, "eval_on_start", False):
            self._training.exclude(VALIDATION)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """End a step; if the trainer is about to log, after that: the scalars belong to this step."""
        if not self._training.is_open:
            return
        tokens, self._tokens = state.num_input_tokens_seen - self._tokens, state.num_input_tokens_seen
        if tokens > 0:  # the trainer adds up those of all ranks
            self._training.log(tokens=tokens / world_size())
        self._await_log(control, ends_step=True)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Exclude the evaluation or saving that follows."""
        self._await_log(control, ends_step=False)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Attach the logged numbers to the step."""
        self._training.log_all(logs or {})
        self._end_awaited(control)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """End the excluded time that no other event has ended."""
        self._training.include()

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Exclude an evaluation that nothing announced, such as one that another callback asked for."""
        self._end_awaited(control)
        if not self._training.is_excluded:
            self._training.exclude(VALIDATION)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Begin the step that follows, or the saving: with the strategy ``best`` only the evaluation decides on it."""
        if control.should_save or (getattr(args.save_strategy, "value", args.save_strategy) == "best"):
            self._training.exclude(SAVING)
        else:
            self._training.include()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Begin the step that follows."""
        self._end_awaited(control)
        self._training.include()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the session."""
        self._training.end()

    def _await_log(self, control: TrainerControl, *, ends_step: bool) -> None:
        self._end_awaited(control)
        self._expects_log, self._ends_step = control.should_log, ends_step
        if not control.should_log:
            self._announce(control)

    def _end_awaited(self, control: TrainerControl) -> None:
        """End the step whose end was put off until the trainer has logged."""
        if self._expects_log:
            self._expects_log = False
            self._announce(control)

    def _announce(self, control: TrainerControl) -> None:
        """End the step, and exclude the evaluation or saving that follows."""
        if self._ends_step:
            self._ends_step = False
            self._training.end_step()
        if control.should_evaluate:
            self._training.exclude(VALIDATION)
        elif control.should_save:
            self._training.exclude(SAVING)
