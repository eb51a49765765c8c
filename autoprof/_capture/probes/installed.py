"""Replacements of others' functions that sessions share: there while a session uses them, away while torch compiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from .compiling import around_compiler
from .handle import Handle

User = TypeVar("User")


class Installation(Generic[User]):
    """Put replacements in place for the first session that uses them, and back after the last.

    ``put`` puts all of them and returns what puts each one back. ``listening`` holds those of the users that want to
    hear of calls now; it is one list for good, so that a wrapper may hold it itself.
    """

    def __init__(self, put: Callable[[], Iterable[Callable[[], None]]]) -> None:
        self.listening: list[User] = []
        self._put = put
        self._users: list[User] = []
        self._put_back: list[Callable[[], None]] = []
        self._aside = Handle()

    @property
    def in_place(self) -> bool:
        """Whether anything is replaced now."""
        return bool(self._put_back)

    def listen(self, user: User) -> None:
        """Tell this one of calls; it uses the replacements from now until ``leave``."""
        if user not in self._users:
            self._users.append(user)
            if not self._put_back:
                self._aside.add(around_compiler(self._take_away, self._put_in_place).remove)
                self._put_in_place()
        if user not in self.listening:
            self.listening.append(user)

    def ignore(self, user: User) -> None:
        """Tell this one no more; the replacements stay."""
        if user in self.listening:
            self.listening.remove(user)

    def leave(self, user: User) -> None:
        """Put everything back once nobody uses it."""
        self.ignore(user)
        if user in self._users:
            self._users.remove(user)
        if not self._users:
            self._aside.remove()
            self._take_away()

    def _put_in_place(self) -> None:
        if self._users and not self._put_back:
            self._put_back.extend(self._put())

    def _take_away(self) -> None:
        while self._put_back:
            self._put_back.pop()()


def replace(owner: Any, name: str, inner: Any, ours: Any) -> Callable[[], None]:
    """Have this attribute be ours; return what makes it ``inner`` again, or inherited again where it was."""
    had = name in vars(owner)

    def put_back() -> None:
        if vars(owner).get(name) is ours:  # what somebody else has put in its place meanwhile stays
            setattr(owner, name, inner) if had else delattr(owner, name)

    setattr(owner, name, ours)
    return put_back
