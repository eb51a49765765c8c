from collections.abc import Callable, Iterator
from typing import Any

class Hook:
    __name__: str
    __wrapped__: Callable[..., None]
    def __call__(self, *args: Any) -> None: ...

class State:
    mark: Any
    def __init__(
        self,
        marked: type,
        tensor: type,
        buffer: list[Any],
        failed: Callable[[Any, Any, Exception], None],
        task: Callable[[], int],
        number: Callable[[], int],
        nodes: dict[Any, list[int]],
        gaps: list[Any],
        passes: Any,
        kinds: tuple[int, int, int, int],
        full: int,
        most: int,
        home: int,
    ) -> None: ...
    def hook(self, path: str, slow: Callable[..., None]) -> Hook: ...
    def renew(self, on: bool, alone: bool, training: int, read: Callable[[], Any]) -> None: ...
    def begin_step(self, serial: int, ordinals: Iterator[int]) -> None: ...

def show(function: Callable[..., None]) -> None: ...
