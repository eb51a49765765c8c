"""Trace a graph again that torch took from its cache: the nodes that its code was generated from, with their modules.

Torch traces a program in each process, yet goes no further where its cache has the graph. Its own functions take the
graph through the same passes here; nothing is compiled, and nothing that torch has made is touched. The graph is the
cached one if its text is the same.
"""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any, NamedTuple

import torch


class Retraced(NamedTuple):
    """A graph behind all passes of torch, and whether it is that of a backward."""

    graph: Any
    is_backward: bool


def retrace(
    cached: Mapping[str, Any], compile_fx: Callable[..., Any], model: Any, *args: Any, **kwargs: Any
) -> dict[str, Retraced]:
    """Trace a copy of dynamo's graph module as ``compile_fx`` does, and return the graphs by their texts.

    ``cached`` has what torch took from its cache, by the same texts.
    """
    inductor: Any = import_module("torch._inductor.compile_fx")
    from torch._inductor.utils import set_tracing_context_output_strides
    from torch._inductor.virtualized import V

    found: dict[str, Retraced] = {}

    def take(module: Any, inputs: Any, **options: Any) -> Callable[..., Any]:
        inductor.view_to_reshape(module)
        with torch.no_grad():
            fake_mode = inductor.fake_tensor_prop(module, inputs)
        with V.set_fake_mode(fake_mode):
            inductor._recursive_post_grad_passes(module, is_inference=bool(options.get("is_inference")))
        printed = module.print_readable(
            print_output=False, include_stride=True, include_device=True, fast_sympy_print=True
        )
        text, is_backward = text_of(printed), bool(options.get("is_backward"))
        found[text] = Retraced(module.graph, is_backward)
        if text in cached and not is_backward:  # the backward's inputs have the layouts of the forward's outputs
            set_tracing_context_output_strides(inputs, cached[text])
        return _never_called

    if _asks_other_ranks(inductor.config):
        raise RuntimeError("torch's passes would wait for other ranks, which may have names")
    with _unchanged():
        compile_fx(_copy_of(model), *args, **{**kwargs, "inner_compile": take})
    return found


def _asks_other_ranks(config: Any) -> bool:
    """Return whether torch's passes decide together with other ranks."""
    from torch._functorch import config as functorch

    overlap = getattr(config, "aten_distributed_optimizations", None)
    return bool(
        getattr(functorch, "_sync_decision_cross_ranks", False) or getattr(overlap, "enable_overlap_scheduling", False)
    )


def _copy_of(model: Any) -> Any:
    """Return a copy of dynamo's graph module, which torch's passes may change."""
    made = torch.fx.GraphModule(model, copy.deepcopy(model.graph))
    for name, value in vars(model).items():
        vars(made).setdefault(name, value)
    made.meta.update(model.meta)
    for node, old in zip(made.graph.nodes, model.graph.nodes, strict=True):
        if hasattr(old, "_dynamo_source"):
            node._dynamo_source = old._dynamo_source
    return made


def text_of(printed: str) -> str:
    """Return the text of a graph without the comments on lines of the program, which move when others are edited."""
    return "\n".join(line for line in printed.splitlines() if line.strip() and not line.lstrip().startswith("#"))


def _never_called(_inputs: Any) -> None:
    raise AssertionError("a graph that was traced for its names has no code")


_never_called._boxed_call = True  # type: ignore[attr-defined]


@contextmanager
def _unchanged() -> Iterator[None]:
    """Leave torch's counters and context as they are; keep warnings silent, and torch's caches out."""
    from torch._dynamo.utils import counters
    from torch._functorch import aot_autograd, config
    from torch._guards import TracingContext, tracing

    context = TracingContext.try_get()
    shapes = getattr(getattr(context, "fake_mode", None), "shape_env", None)
    kept = {name: copy.copy(counter) for name, counter in counters.items()}
    numbers = aot_autograd.AOT_COUNTER
    aot_autograd.AOT_COUNTER = itertools.count()
    try:
        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            stack.enter_context(tracing(copy.copy(context)))
            stack.enter_context(config.patch(enable_autograd_cache=False, force_non_lazy_backward_lowering=True))
            if shapes is not None:
                stack.enter_context(shapes.suppress_guards())
            yield
    finally:
        aot_autograd.AOT_COUNTER = numbers
        counters.clear()
        counters.update(kept)
