"""Prepare a Python process before its program starts: no module but a few of the standard library is loaded here."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .announced import Announced
from .import_hook import ImportHook
from .settings import LaunchSettings

if TYPE_CHECKING:
    from .trainings import Trainings


def begin(folder: str) -> None:
    """Look for training in this process. ``folder`` leaves ``sys.path``, which is then that of the program."""
    settings = LaunchSettings.read(os.environ)
    if settings is not None:
        launch = Launch(settings)
        sys.meta_path.insert(0, ImportHook("torch.optim.optimizer", launch.optimizers_imported))
        if settings.pid == os.getpid():
            atexit.register(partial(launch.report, settings.pid))
    sys.path[:] = [one for one in sys.path if one != folder]
    _import_hidden_site()


def _import_hidden_site() -> None:
    """Import the ``sitecustomize`` that Python would have found without ours."""
    site = "sitecustomize"
    ours = sys.modules.pop(site, None)
    try:
        __import__(site)
    except ImportError as error:
        if error.name != site:
            raise
    finally:
        if ours is not None:  # importlib looks for the name again when it has executed the module
            sys.modules.setdefault(site, ours)


class Launch:
    """The search for training in one process, from the import of torch's optimizers on."""

    def __init__(self, settings: LaunchSettings) -> None:
        self._settings = settings
        self._trainings: Trainings | None = None
        self._failed = False

    def optimizers_imported(self, module: ModuleType) -> None:
        """Called when ``torch.optim.optimizer`` is imported."""
        Announced(module.Optimizer, "__init__", self._optimizer_made).put()

    def _optimizer_made(self, optimizer: Any) -> None:
        if self._failed:
            return
        try:
            if self._trainings is None:
                from .trainings import Trainings

                self._trainings = Trainings(self._settings, say)
            self._trainings.optimizer_made(optimizer)
        except Exception as error:
            self._failed = True
            say(f"this program is not recorded: {type(error).__name__}: {error}")

    def report(self, pid: int) -> None:
        """Say why nothing was recorded, if nothing was and the program ended well. Called at exit."""
        if os.getpid() != pid or self._failed or hasattr(sys, "last_type"):
            return
        lifecycle = sys.modules.get("autoprof.base.process.lifecycle")  # nothing is imported
        if lifecycle is not None and lifecycle.program_has_session():
            say(
                "the program opens a session itself (autoprof.instrument or a framework callback): "
                "its configuration and output folder apply, not those of autoprof run"
            )
            return
        if self._trainings is not None:
            reason = self._trainings.reason()
        elif _has_children():
            reason = None
        else:
            reason = (
                "no training was found: the program made no torch.optim optimizer; if it updates the parameters "
                "itself, call autoprof.instrument(model) in it, and session.step() at the end of each iteration"
            )
        if reason is not None:
            say(f"nothing was recorded: {reason}")


def say(message: str) -> None:
    """Print one line to the standard error, which may be closed."""
    with suppress(Exception):
        from ...base.notes import has_open_bar

        before = "\n" if has_open_bar() else ""
        print(f"{before}autoprof run: {message}", file=sys.stderr, flush=True)


def _has_children() -> bool:
    """Return whether the program waited for processes that worked long enough to train: they are recorded too."""
    with suppress(ImportError, OSError):
        import resource

        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime > 1.0
    return False
