"""Functions of torch that are private in some supported versions (2.4 and newer): the public one where it exists.

``torch.autograd.graph.node_creation_hook`` (2.15) is not used: it adds 1.8 µs to each ``nn.Linear`` and a prehook to
every node, where autoprof needs one on two nodes of a module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _disable_current_modes

_graph: Any = torch.autograd.graph
_engine: Any = torch.autograd.Variable._execution_engine
queue_callback: Final[Callable[[Callable[[], None]], None]] = getattr(_graph, "queue_callback", _engine.queue_callback)
"""Call a function when the running backward pass has no more nodes to run; public since 2.15."""


@contextmanager
def without_modes() -> Iterator[None]:
    """Call no mode of functions or operators inside the block, as ``FlopCounterMode`` or a default device."""
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        yield


@contextmanager
def unseen_by_modes() -> Iterator[None]:
    """Show the functions, operators and saved tensors of the block to no mode or hook that the program has entered.

    A default device stays: the functions would make their tensors elsewhere.
    """
    entered: list[TorchFunctionMode] = []
    try:
        while torch._C._len_torch_function_stack():
            entered.append(torch._C._pop_torch_function_stack())
        with ExitStack() as stack:
            stack.enter_context(_disable_current_modes())
            if _has_saved_tensor_hooks():
                with suppress(RuntimeError):  # the program has forbidden such hooks
                    stack.enter_context(_graph.saved_tensors_hooks(_same, _same))  # torch calls the innermost ones only
            for mode in reversed(entered):
                if isinstance(mode, DeviceContext):
                    stack.enter_context(torch.device(mode.device))
            yield
    finally:
        for mode in reversed(entered):
            torch._C._push_on_torch_function_stack(mode)


def _has_saved_tensor_hooks() -> bool:
    """Return whether saved tensors are passed to hooks now; True where torch does not tell it.

    Hooks of ours would keep an output that is saved, and the node that holds it, alive for each other.
    """
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return top is None or top(True) is not None


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
