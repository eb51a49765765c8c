"""The nodes of the kernels of a generated file: small graphs, and texts as inductor writes them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.fx import Graph, Node

from autoprof.capture.graphs.buffers import calls_of

aten = torch.ops.aten


def add(graph: Graph, operator: Any, *args: Any, source: str, of: Any = None, size: tuple[int, ...] = (8, 4)) -> Node:
    """Add a node with what torch notes at it: its value, the operator it was a part of, and its source."""
    node = graph.create_node("call_function", operator, args, name=str(operator).split(".")[1])
    node.meta |= {"val": torch.empty(size, device="meta"), "original_aten": of or operator}
    node.meta["from_node"] = [SimpleNamespace(name=source)]
    return node


@pytest.fixture
def graph() -> Graph:
    """Return two linear layers with an activation between them, of two nodes."""
    made = Graph()
    x, one, bias, two = (made.placeholder(f"primals_{at}") for at in range(1, 5))
    for node, size in ((x, (8, 4)), (one, (4, 4)), (bias, (4,)), (two, (4, 4))):
        node.meta["val"] = torch.empty(size, device="meta")
    first = add(made, aten.permute.default, one, [1, 0], source="linear", of=aten.t.default, size=(4, 4))
    first = add(made, aten.addmm.default, bias, x, first, source="linear")
    inner = add(made, aten.erf.default, first, source="gelu", of=aten.gelu.default)
    inner = add(made, aten.mul.Tensor, first, inner, source="gelu", of=aten.gelu.default)
    last = add(made, aten.permute.default, two, [1, 0], source="linear_1", of=aten.t.default, size=(4, 4))
    made.output((add(made, aten.mm.default, inner, last, source="linear_1"), inner))
    return made


TRITON = """
{name} = async_compile.triton('{name}', '''
@triton.jit
def {name}(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    pass
''', device_str='cuda')
class Runner:
    def call(self, args):
        primals_1, primals_2, primals_3, primals_4 = args
        args.clear()
        with torch.cuda._DeviceGuard(0):
            torch.cuda.set_device(0)
            buf0 = empty_strided_cuda((8, 4), (4, 1), torch.float32)
            # Topologically Sorted Source Nodes: [linear], Original ATen: [aten.t, aten.addmm]
            extern_kernels.addmm(primals_3, primals_1, reinterpret_tensor(primals_2, (4, 4), (1, 4), 0), out=buf0)
            del primals_3
            buf1 = empty_strided_cuda((8, 4), (4, 1), torch.float32)
            # Topologically Sorted Source Nodes: [{sources}], Original ATen: [aten.gelu]
            stream0 = get_raw_stream(0)
            {name}.run(buf0, buf1, 32, stream=stream0)
            buf2 = buf0; del buf0  # reuse
            # Topologically Sorted Source Nodes: [{last}], Original ATen: [aten.t, aten.mm]
            extern_kernels.mm(buf1, reinterpret_tensor(primals_4, (4, 4), (1, 4), 0), out=buf2)
        return (buf2, buf1, )
"""
CPP = """
cpp_fused_gelu_0 = async_compile.cpp_pybinding(['const float*', 'at::BFloat16*'], r'''
extern "C"  void  kernel({parameters})
''')
class Runner:
    def call(self, args):
        primals_1, primals_2, primals_3, primals_4 = args
        args.clear()
        buf0 = empty_strided_cpu((8, 4), (4, 1), torch.float32)
        # Topologically Sorted Source Nodes: [linear], Original ATen: [aten.t, aten.addmm]
        extern_kernels.addmm(primals_3, primals_1, reinterpret_tensor(primals_2, (4, 4), (1, 4), 0), out=buf0)
        {buffer}
        cpp_fused_gelu_0({arguments})
        {between}
        buf2 = empty_strided_cpu((8, 4), (4, 1), torch.float32)
        # Topologically Sorted Source Nodes: [linear_1], Original ATen: [aten.t, aten.mm]
        extern_kernels.mm(buf1, reinterpret_tensor(primals_4, (4, 4), (1, 4), 0), out=buf2)
        return (buf2, buf1, )
"""


def names(path: Path, text: str, graph: Graph) -> list[tuple[str, list[str] | None]]:
    """Return the calls of a generated text with the names of their nodes."""
    path.write_text(text)
    calls = calls_of(str(path), graph)
    return [(name, None if nodes is None else [node.name for node in nodes]) for name, nodes in calls]


def triton(name: str = "triton_poi_fused_gelu_0", sources: str = "gelu", last: str = "linear_1") -> str:
    return TRITON.format(name=name, sources=sources, last=last)


def cpp(**parts: str) -> str:
    given = {
        "parameters": "const float* in_ptr0, at::BFloat16* out_ptr0",
        "arguments": "buf0, buf1",
        "buffer": "buf1 = empty_strided_cpu((8, 4), (4, 1), torch.float32)",
        "between": "pass",
    }
    return CPP.format(**(given | parts))


@pytest.mark.parametrize("text", [triton(), cpp()], ids=["triton", "cpp"])
def test_each_kernel_has_the_nodes_that_it_leaves_to_others(text: str, graph: Graph, tmp_path: Path) -> None:
    """Triton's text names the source nodes of each kernel, that of C++ only those of operators."""
    (one, fused, two) = names(tmp_path / "generated.py", text, graph)
    assert one == ("extern_kernels.addmm", ["addmm"])
    assert fused[1] == ["mul"]
    assert two == ("extern_kernels.mm", ["mm"])


def test_a_kernel_that_writes_over_its_input_has_the_node_of_what_it_leaves(graph: Graph, tmp_path: Path) -> None:
    text = cpp(parameters="float* in_out_ptr0", arguments="buf1", buffer="buf1 = buf0; del buf0  # reuse")
    assert [nodes for _, nodes in names(tmp_path / "generated.py", text, graph)] == [["addmm"], ["mul"], ["mm"]]


def test_a_kernel_whose_comment_names_another_source_has_no_node(graph: Graph, tmp_path: Path) -> None:
    for text in (triton(sources="gelu, another"), triton(sources="linear"), triton(sources="")):
        assert [nodes for _, nodes in names(tmp_path / "generated.py", text, graph)] == [["addmm"], None, ["mm"]]


def test_an_operator_whose_comment_names_what_it_does_not_read_has_no_node(graph: Graph, tmp_path: Path) -> None:
    assert names(tmp_path / "generated.py", triton(last="another"), graph)[-1] == ("extern_kernels.mm", None)
    assert names(tmp_path / "generated.py", triton(last="linear_1, another"), graph)[-1] == ("extern_kernels.mm", None)


def test_a_kernel_that_is_named_for_an_unknown_operator_has_no_node(graph: Graph, tmp_path: Path) -> None:
    calls = names(tmp_path / "generated.py", triton(name="triton_poi_fused_gelu_relu_0"), graph)
    assert [nodes for _, nodes in calls] == [["addmm"], None, ["mm"]]


def test_a_kernel_that_copies_for_an_operator_belongs_to_it(graph: Graph, tmp_path: Path) -> None:
    """The name has the operator for which a value is copied into another layout."""
    calls = names(tmp_path / "generated.py", triton("triton_poi_fused_gelu_mm_0", "gelu, linear_1"), graph)
    assert [nodes for _, nodes in calls] == [["addmm"], ["mm"], ["mm"]]


def test_a_buffer_that_unknown_code_may_have_changed_has_no_node(graph: Graph, tmp_path: Path) -> None:
    """A kernel of the user's own, or a collective."""
    calls = names(tmp_path / "generated.py", cpp(between="user_kernel_0.run(buf1)"), graph)
    assert dict(calls)["cpp_fused_gelu_0"] is None


@pytest.mark.parametrize("text", ["def partition_0(args):\n    pass\n" + cpp(), cpp(between="if buf1: pass")])
def test_a_file_in_parts_or_with_branches_is_not_read(text: str, graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a graph"):
        names(tmp_path / "generated.py", text, graph)
