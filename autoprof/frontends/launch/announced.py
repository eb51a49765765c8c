"""Announce calls of a method without a frame on the stack of the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Announced:
    """A method of a class that calls ``announce`` with the object before each call, while it is in place.

    Python reads a method from the class before it calls it. The announcement is made while it is read, and has returned
    when the method runs: no traceback, no warning and no ``sys._getframe`` of the program sees it. Read from the class
    itself, the method is the original.
    """

    def __init__(self, owner: type, name: str, announce: Callable[[Any], None]) -> None:
        self._owner, self._name = owner, name
        self._method: Any = vars(owner)[name]
        self._announce = announce

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is not None:
            self._announce(instance)
        return self._method.__get__(instance, owner)

    def __call__(self, instance: Any, *args: Any, **kwargs: Any) -> Any:
        """Announce a call and make it, for a wrapper that has found this object in the class in place of the method."""
        self._announce(instance)
        return self._method(instance, *args, **kwargs)

    def put(self) -> None:
        """Announce calls from now on; not where another package has replaced the method meanwhile."""
        if vars(self._owner).get(self._name) is self._method:
            setattr(self._owner, self._name, self)

    def remove(self) -> None:
        """Put the original back."""
        if vars(self._owner).get(self._name) is self:
            setattr(self._owner, self._name, self._method)
