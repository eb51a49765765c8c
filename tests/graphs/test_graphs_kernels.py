"""Which module does a kernel belong to? Read from graphs of nodes as torch's compiler writes them."""

from __future__ import annotations

from typing import Any

import pytest

from autoprof import Phase
from autoprof.capture.graphs.kernels import NodeModules, outputs_of, split


class Node:
    """A node of torch's graph: its inputs, its users, and the module that it comes from."""

    def __init__(self, *inputs: Node, module: str | None = None, op: str = "call_function", **meta: Any) -> None:
        self.op, self.all_input_nodes = op, list(inputs)
        self.users: dict[Node, None] = {}
        self.meta = meta
        if module is not None:
            stack = {"1": (f"L['self'].{module}" if module else "L['self']", object)}
            self.meta |= {"nn_module_stack": stack, "source_fn_stack": [("f", None)]}
        for one in inputs:
            one.users[self] = None


class Buffer:
    """A buffer of inductor: the node that it is, or those that it was computed from."""

    def __init__(self, *origins: Node, node: Node | None = None) -> None:
        self.origins, self.origin_node = origins, node


def paths(nodes: list[Node], *buffers: Buffer, lines: Any = None, backward: bool = False) -> Any:
    """Return the paths and the phase of the kernel that computes the buffers."""
    kernel = NodeModules(nodes, lines or {}, is_backward=backward).kernel("kernel", buffers)
    return [".".join(path).removeprefix("L['self']").lstrip(".") for path in kernel.paths], kernel.phase


def test_a_buffer_belongs_to_the_module_of_its_node() -> None:
    node = Node(module="blocks.0.a")
    assert paths([node], Buffer(node=node)) == (["blocks.0.a"], Phase.FORWARD)


def test_a_buffer_without_a_node_belongs_to_the_last_it_was_computed_from() -> None:
    """Not to the first: a convolution's gradient takes in the mask of the activation before it."""
    relu = Node(module="relu")
    conv = Node(relu, module="conv")
    assert paths([relu, conv], Buffer(conv, relu))[0] == ["conv"]
    assert paths([relu, conv], Buffer(relu, conv))[0] == ["conv"]


def test_the_modules_of_all_outputs_are_known() -> None:
    one, other = Node(module="a"), Node(module="b")
    assert paths([one, other], Buffer(node=one), Buffer(node=other), Buffer(node=one))[0] == ["a", "b"]


def test_an_operation_in_the_compiled_function_itself_belongs_to_no_module() -> None:
    child = Node(module="child")
    own = Node(child, source_fn_stack=[("add", None)])
    kernel = NodeModules([child, own], {}, is_backward=False).kernel("kernel", [Buffer(node=own)])
    assert kernel.paths == (("",),)


def test_a_sum_of_gradients_belongs_to_the_module_computed_last() -> None:
    first, last = Node(module="first"), Node(module="last")
    assert paths([first, last, node := Node(first, last)], Buffer(node=node))[0] == ["last"]


def test_a_node_that_a_pass_made_belongs_to_the_module_of_its_line() -> None:
    """Attention that torch found in several operations has no module of its own, but their line."""
    q = Node(module="attention.q")
    node = Node(q, stack_trace="line 7")
    assert paths([q, node], Buffer(node=node), lines={"line 7": {("L['self']", "attention")}})[0] == ["attention"]


def test_of_modules_that_share_a_line_the_nearest_one_counts() -> None:
    """The blocks in a loop run the same line."""
    q = Node(module="blocks.1.attention.q")
    node = Node(q, stack_trace="line 7")
    lines = {"line 7": {("L['self']", "blocks", at, "attention") for at in "01"}}
    assert paths([q, node], Buffer(node=node), lines=lines)[0] == ["blocks.1.attention"]


def test_a_copy_of_a_weight_belongs_to_the_module_that_uses_it() -> None:
    weight = Node(op="placeholder")
    conv = Node(weight, module="conv")
    kernel = NodeModules([weight, conv], {}, is_backward=False).kernel("kernel", [Buffer(weight)])
    assert kernel.paths == (("L['self']", "conv"),)
    assert kernel.is_layout


@pytest.mark.parametrize(
    ("tags", "phase"),
    [
        (["is_forward"], Phase.RECOMPUTE),
        (["is_backward"], Phase.BACKWARD),
        (["is_forward", "is_backward"], Phase.BACKWARD),
    ],
)
def test_a_forward_node_in_a_backward_graph_is_recomputed(tags: list[str], phase: Phase) -> None:
    nodes = [Node(module="block", partitioner_tag=tag) for tag in tags]
    assert paths(nodes, *(Buffer(node=node) for node in nodes), backward=True)[1] is phase


@pytest.mark.parametrize(
    "path", ["L['self'].blocks.0", "L['self']._modules['blocks']._modules['0']", "L['self'].blocks[0]"]
)
def test_versions_of_torch_spell_paths_in_several_ways(path: str) -> None:
    assert split(path) == ("L['self']", "blocks", "0")


def test_a_module_outside_the_model_works_for_the_module_that_calls_it() -> None:
    """Models of transformers call an activation that is a global of their file."""
    stack = {"1": ("L['self'].head", object), "2": ("G['gelu']", object)}
    node = Node(nn_module_stack=stack)
    assert paths([node], Buffer(node=node))[0] == ["head"]


class Scheduled:
    """A scheduled node of inductor with its buffer, read by those that ``used_by`` names."""

    def __init__(self, name: str, *used_by: str) -> None:
        self.name, self.node = name, Buffer()
        users = [type("User", (), {"node": type("Used", (), {"get_name": lambda _, n=one: n})()})() for one in used_by]
        self.outputs = [type("Output", (), {"users": users})()]

    def get_name(self) -> str:
        return self.name

    def get_outputs(self) -> list[Any]:
        return self.outputs


def test_a_value_used_only_inside_a_kernel_is_no_output() -> None:
    inner, outer = Scheduled("op0", "op1"), Scheduled("op1", "op2")
    assert outputs_of([inner, outer]) == [outer.node]
