"""The session of a framework's training: opened at its begin, closed at its end."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from itertools import chain
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from torch import nn

from ..base.process import lifecycle
from ..base.process.ranks import launch_name, world_size
from ..errors import SessionError
from ..probes import unwrap_optimizer
from ..session.builder import FoundTraining, open_session
from ..session.session import Session

if TYPE_CHECKING:
    from ..sinks import Config, Sink

SAVING: Final = "checkpoint saving"
AGAIN: Final = "error: the training began again before it ended"
"""The end noted for a session whose training began anew, as with ``auto_find_batch_size`` of transformers."""
SCALARS: Final = {
    "learning_rate": "lr",
    "train/learning_rate": "lr",
    "train/lr": "lr",
    "train/loss": "loss",
    "train_loss": "loss",
    "train/grad_norm": "grad_norm",
}
"""The names of ``session.log`` for those of the frameworks; other names stay."""


_runs: Final = Counter[str]()
"""How often each name was given to a run of several ranks."""


class Training:
    """The session of one training after another of a framework; a copy or a pickle of it has no session.

    A session that the program opened on the same model is used and left open: it receives the framework's facts, and
    its steps stay as the program ends them.
    """

    def __init__(
        self,
        config: str | os.PathLike[str] | Mapping[str, Any] | Config | None,
        sinks: Iterable[Sink],
    ) -> None:
        self.session: Session | None = None
        """The session of the latest training, open or closed."""
        self._config = config
        self._sinks = tuple(sinks)
        self._is_open = self._owns = False
        self._excluded: ExitStack | None = None

    def __getstate__(self) -> dict[str, Any]:
        return Training(self._config, self._sinks).__dict__

    @property
    def is_open(self) -> bool:
        """Whether a training is being recorded."""
        return self._is_open

    def begin(
        self,
        model: nn.Module,
        optimizers: Iterable[Any],
        *,
        total_steps: float | None = None,
        run_name: str | None = None,
    ) -> None:
        """Open a session, or use the one that the program opened on the same model.

        ``run_name`` is the name that all ranks give to the run; None for the usual one.
        """
        self.end(AGAIN)
        session = _session_of_program(model)
        self._owns = session is None
        if session is None:
            lifecycle.prefer_program()
            found = FoundTraining(run_name=_name_of_ranks(run_name))
            session = open_session(
                model, self._settings(), optimizer=_known(optimizers), sinks=self._sinks, found=found
            )
        self.session, self._is_open = session, True
        if total_steps is not None and isfinite(total_steps) and total_steps >= 1:
            self.log(total_steps=int(total_steps))

    def _settings(self) -> Config:
        from ..sinks import load_config

        return load_config(self._config).model_copy(update={"step": "manual"})

    def end_step(self) -> None:
        """End a step, unless the program ends the steps itself."""
        if self._is_open and self._owns and self.session is not None:
            self.session.step()

    def log(self, **scalars: Any) -> None:
        """Attach scalars to the open step."""
        if self._is_open and self.session is not None:
            self.session.log(**scalars)

    def log_all(self, values: Mapping[str, Any]) -> None:
        """Attach those numbers to the open step that a framework logs, under the session's names."""
        # The ends of names that frameworks log and a session has itself: times and rates.
        self.log(
            **{
                SCALARS.get(name, name): value
                for name, value in values.items()
                if isinstance(value, (int, float))
                and not isinstance(value, bool)
                and not name.endswith(("_runtime", "_per_second", "_flos", "num_input_tokens_seen", "_timing"))
            }
        )

    def exclude(self, name: str) -> None:
        """Exclude the time from now to ``include`` from steps; in excluded time, only the name changes."""
        if not self._is_open or self.session is None:
            return
        self.include()
        self._excluded = ExitStack()
        self._excluded.enter_context(self.session.pause(name))

    def include(self) -> None:
        """End the excluded time, if there is any."""
        excluded, self._excluded = self._excluded, None
        if excluded is not None:
            excluded.close()

    @property
    def is_excluded(self) -> bool:
        """Whether ``exclude`` was called and ``include`` was not."""
        return self._excluded is not None

    def end(self, how: str = "closed") -> None:
        """Close the session that this object opened; leave open the program's own."""
        if not self._is_open:
            return
        self.include()
        self._is_open = False
        if self._owns and self.session is not None:
            self.session.end(how)

    def fail(self, error: BaseException | None) -> None:
        """Close the session of a training that an exception ended."""
        self.end("closed" if error is None else f"error: {type(error).__name__}: {error}")


def _name_of_ranks(name: str | None) -> str | None:
    """Return the name of a run of several ranks, with a number from the second one of this process on."""
    if world_size() == 1:
        return None
    name = name or launch_name()
    _runs[name] += 1
    return name if _runs[name] == 1 else f"{name}-{_runs[name]}"


def _session_of_program(model: nn.Module) -> Session | None:
    """Return the open session that the program opened on this model or on a part of it."""
    for module in chain([model], model.modules()):
        session = lifecycle.session_of(module)
        if isinstance(session, Session) and not lifecycle.is_launched(session):
            return session
    return None


def _known(optimizers: Iterable[Any]) -> list[Any] | None:
    """Return the optimizers of torch; None, which stands for all that step, where one is of another kind."""
    with suppress(SessionError):
        return [unwrap_optimizer(one) for one in optimizers] or None
    return None
