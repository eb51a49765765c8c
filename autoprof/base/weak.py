"""An attribute that does not keep its object alive."""

from __future__ import annotations

import weakref
from typing import Any


class Weak:
    """A descriptor for an attribute of a session's part that the program owns, such as its model.

    Reading it raises ``ReferenceError`` once the program has dropped the object.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, one: Any, owner: type) -> Any:
        if one is None:
            raise AttributeError(self._name)  # so that the field of a dataclass has no default
        found = vars(one)[self._name]()
        if found is None:
            raise ReferenceError(f"{owner.__name__}.{self._name} exists no longer: the program has dropped it")
        return found

    def __set__(self, one: Any, value: Any) -> None:
        vars(one)[self._name] = weakref.ref(value)


def has_module(one: Any) -> bool:
    """Return whether the program still has the object of the ``Weak`` attribute ``module``."""
    return vars(one)["module"]() is not None
