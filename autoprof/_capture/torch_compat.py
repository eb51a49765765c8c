"""Functions of torch that are private in some supported versions (2.4 and newer): the public one where it exists.

``torch.autograd.graph.node_creation_hook`` (2.15) is not used: it adds 1.8 µs to each ``nn.Linear`` and a prehook to
every node, where autoprof needs one on two nodes of a module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

_graph: Any = torch.autograd.graph
_engine: Any = torch.autograd.Variable._execution_engine
queue_callback: Final[Callable[[Callable[[], None]], None]] = getattr(_graph, "queue_callback", _engine.queue_callback)
"""Call a function when the running backward pass has no more nodes to run; public since 2.15."""
