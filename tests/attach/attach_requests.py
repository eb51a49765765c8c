"""Requests to attach, as a command writes them, for the process of the test itself."""

from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from autoprof.frontends.attach.arming import STEP_END, receive
from autoprof.frontends.attach.exchange import REQUEST, TEXT, Request, read_replies

ORIGINAL = vars(Optimizer)[STEP_END]
"""Torch's own method, which is replaced while a request waits or a session is open."""


class Command:
    """A command that asks this process, without the process of a command."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.exchange = folder / "exchange"
        self.exchange.mkdir(parents=True)
        self.request = Request(str(folder), **options)

    def ask(self) -> None:
        """Have the process receive the request."""
        receive(str(self.request.write(self.exchange)))

    def withdraw(self) -> None:
        """Take the request back, as Ctrl-C does."""
        (self.exchange / REQUEST).unlink()

    def states(self) -> list[str]:
        """Return the states that the process has replied."""
        return [one["state"] for one in read_replies(self.exchange)]

    def reasons(self) -> list[str]:
        """Return why the process could not do it."""
        return [one["reason"] for one in read_replies(self.exchange) if one["state"] == "failed"]

    def text(self) -> str:
        """Return what the session has printed."""
        return (self.exchange / TEXT).read_text(encoding="utf-8")


def is_armed() -> bool:
    """Return whether torch's method is replaced."""
    return vars(Optimizer)[STEP_END] is not ORIGINAL
