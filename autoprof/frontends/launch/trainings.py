"""Open a session for each training of a process, when its model is first called with gradients."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.util import Finalize
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import optimizer as torch_optimizer

from ...base.failures import contain, describe
from ...base.process import lifecycle
from ...base.process.gc_paused import GcPaused
from ...base.process.ranks import launch_name, rank, world_size
from ...capture.compiler import around_compiler
from ...capture.handle import Handle
from ...errors import AutoprofError
from .announced import Announced
from .models import Models, calling_frame, find_models, join_models, parameters_of
from .settings import LaunchSettings

if TYPE_CHECKING:
    from ...session.session import Session
    from ...sinks import Config


class Trainings:
    """Find the trainings of one process, one after another, and hold the session of the present one.

    A training begins with the first call with gradients of a module that holds parameters of a new optimizer: every
    model, wrapper and optimizer exists by then. The session of the training before it ends there. New optimizers of the
    same models belong to the same training.
    """

    def __init__(self, settings: LaunchSettings, say: Callable[[str], None]) -> None:
        self._settings, self._say = settings, say
        self._optimizers: list[weakref.ref[Any]] = []
        """The optimizers of the training, and those whose parameters have not been called yet."""
        self._calls = Announced(nn.Module, "__call__", self._module_called)
        self._searches = 0
        self._searching = False
        self._lock = Lock()
        self._first_called: weakref.ref[nn.Module] | None = None
        self.session: Session | None = None
        """The session of the present training."""
        self._joined: Models | None = None
        """The module that holds the session's models, where there are several: only this class keeps it alive."""
        self._covered: frozenset[int] = frozenset()
        """The parameters of the session's models, by id."""
        self._opened = self._stepped = self._failed = False
        self._number = 0
        self._around_compiler = Handle()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def reason(self) -> str | None:
        """Return why nothing was recorded; None where a session was opened, or a failure was reported."""
        if self._opened or self._failed:
            return None
        if not self._stepped:
            return "an optimizer was made, but no module was called that holds its parameters, and it made no step"
        return "an optimizer made steps, but no nn.Module holds its parameters"

    # Events of the program. None of them may raise.

    def optimizer_made(self, optimizer: Any) -> None:
        """Called before each optimizer is initialised."""
        self._optimizers.append(weakref.ref(optimizer))
        # Searches in one process: each changes a method of `nn.Module`, and Python caches no class that changes often.
        if self._searches < 200 and not self._failed and not lifecycle.program_has_session():
            self._search()

    def _module_called(self, module: nn.Module) -> None:
        """Called before each call of a module while a new optimizer's parameters have not been called."""
        if (
            not torch.is_grad_enabled()
            or torch._C._len_torch_dispatch_stack()
            or torch._C._get_tracing_state() is not None
        ):
            return
        if not self._lock.acquire(blocking=False):
            return
        try:
            with contain(self._give_up), GcPaused():
                self._begin(module)
        finally:
            self._lock.release()

    def _optimizer_stepped(self, optimizer: Any, *call: Any) -> None:
        """Called after each optimizer step until the first session: its module was not called, but its code was."""
        self._stepped = True
        hooks = torch_optimizer._global_optimizer_post_hooks
        if next(reversed(hooks.values())) != self._optimizer_stepped:  # torch reads them, and a session adds some
            return
        with contain(self._give_up):
            called = None if self._first_called is None else self._first_called()
            before = set(hooks)
            self._open(self._trained(), called)
            for hook in [hook for key, hook in hooks.items() if key not in before]:
                hook(optimizer, *call)  # torch has read the hooks of this step

    # The search.

    def _search(self) -> None:
        if self._searching:
            return
        self._searches += 1
        self._searching = True
        self._around_compiler = around_compiler(self._calls.remove, self._calls.put)
        self._calls.put()
        hooks = torch_optimizer._global_optimizer_post_hooks
        if not self._opened and self._optimizer_stepped not in hooks.values():
            torch_optimizer.register_optimizer_step_post_hook(self._optimizer_stepped)

    def _end_search(self) -> None:
        self._searching, self._first_called = False, None
        self._around_compiler.remove()
        self._calls.remove()
        hooks = torch_optimizer._global_optimizer_post_hooks
        for key in [key for key, hook in hooks.items() if hook == self._optimizer_stepped]:
            del hooks[key]

    def _forget(self) -> None:
        """Called in a fork: the sessions of its parent are abandoned there."""
        self.session, self._covered, self._lock = None, frozenset(), Lock()

    def _trained(self) -> set[int]:
        """Return the parameters of the optimizers that exist, by id."""
        self._optimizers = [ref for ref in self._optimizers if ref() is not None]
        return set().union(*(parameters_of(ref()) for ref in self._optimizers))

    def _begin(self, module: nn.Module) -> None:
        """Open a session if this module holds parameters of a new optimizer."""
        trained = self._trained()
        inside = {id(one) for one in module.parameters()}
        if not trained & inside:
            if self._first_called is None and any(one.requires_grad for one in module.parameters()):
                self._first_called = weakref.ref(module)
            return
        if self.session is not None:
            if trained <= self._covered:
                self._end_search()
                return
            if not (trained - self._covered) & inside:
                return
            # Another training begins: the optimizers of the session that is open are forgotten.
            self._optimizers = [ref for ref in self._optimizers if not parameters_of(ref()) <= self._covered]
            trained = self._trained()
        self._open(trained, module)

    # Sessions.

    def _open(self, trained: set[int], first: nn.Module | None) -> None:
        from ...session.builder import FoundTraining, open_session
        from ...session.session import OpenSession

        self._end_search()
        if lifecycle.program_has_session():
            return
        models = find_models(trained, first) or find_models(_trainable(first), first)
        if not models:
            return
        self.close()
        model = join_models(models, calling_frame())
        self._joined = model if isinstance(model, Models) else None
        self._number += 1
        count = sum(1 for ref in self._optimizers if ref() is not None)
        # Optimizers that step in turn; more of them step inside the backward, one for each parameter.
        found = FoundTraining(self._run_name(), sys.stderr, count if count <= 8 else 0)
        session = open_session(model, self._config(), optimizer=None, sinks=(), found=found)
        self.session, self._covered = session, frozenset(id(one) for one in model.parameters())
        self._opened = True
        if not isinstance(session, OpenSession):  # the configuration has enabled: false
            return
        lifecycle.mark_launched(session)
        if parent_process() is not None:  # a process of multiprocessing may end without the functions of atexit
            # The session of a process of multiprocessing ends before its queues and pools.
            Finalize(None, session.end, (lifecycle.EXIT,), exitpriority=100)
        if rank() == 0:
            names = ", ".join(type(one).__name__ for one in models)
            where = "" if session.folder is None else f"; files in {os.path.relpath(session.folder)}"
            self._say(f"recording the training of {names}{where}")

    def close(self) -> None:
        """End the search, and the session of the present training."""
        self._end_search()
        session, self.session = self.session, None
        if session is not None:
            session.close()
        self._joined = None

    def _config(self) -> Config:
        from ...sinks import load_config

        config = load_config(self._settings.config)
        output = Path(self._settings.folder) / (self._settings.output or config.output)
        return config.model_copy(update={"output": output})

    def _run_name(self) -> str | None:
        """Return the name that all ranks give to the run of this training; None for a single process."""
        if world_size() == 1:
            return None
        name = self._settings.name or launch_name()
        return name if self._number == 1 else f"{name}-{self._number}"

    def _give_up(self, error: Exception) -> None:
        self._failed = True
        with contain(lambda _: None):
            self._end_search()
        text = str(error) if isinstance(error, AutoprofError) else describe(error)
        self._say(f"this program is not recorded: {text}")


def _trainable(module: nn.Module | None) -> set[int]:
    """Return the parameters of a module that have gradients, by id: DeepSpeed gives copies of them to the optimizer."""
    return set() if module is None else {id(one) for one in module.parameters() if one.requires_grad}
