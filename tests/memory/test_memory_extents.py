"""Bytes of tensors: shared bytes count once; meta, fake and lazy tensors have none."""

from typing import Any

import pytest
import torch
from torch import nn

from autoprof.capture.memory import bytes_of, extents


def held(*values: Any) -> int:
    return bytes_of(extents(values))


def test_a_tensor_holds_its_elements() -> None:
    """Elements times their size, whatever the type."""
    assert held(torch.zeros(3, 5)) == 60
    assert held(torch.zeros(7, dtype=torch.bfloat16)) == 14
    assert held(torch.zeros(0)) == 0
    assert held(torch.tensor(1.0)) == 4


def test_what_is_shared_counts_once() -> None:
    """The same tensor, its transpose, its detached twin and overlapping views."""
    one = torch.zeros(4, 8)
    assert held(one, one.t(), one.detach(), one[1:]) == 128
    assert held(one[0], one[1]) == 64
    assert held(one[0:2], one[1:3]) == 96


def test_views_of_one_flat_storage_count_each_its_part() -> None:
    """As the parameters of FSDP do: each module its own bytes, all together the storage."""
    flat = torch.zeros(100)
    first, second = flat[:40].view(4, 10), flat[40:]
    assert (held(first), held(second), held(first, second)) == (160, 240, 400)


def test_a_tensor_whose_storage_was_given_back_holds_nothing() -> None:
    """FSDP frees the storage of gathered parameters and keeps the tensors."""
    tensor = torch.zeros(16)
    tensor.untyped_storage().resize_(0)
    assert held(tensor) == 0


def test_meta_and_lazy_tensors_hold_nothing() -> None:
    """They have shapes, or not even these."""
    assert held(torch.zeros(1000, device="meta"), nn.Linear(9, 9, device="meta").weight) == 0
    assert held(*nn.LazyLinear(4).parameters()) == 0


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_a_sparse_tensor_holds_indices_and_values() -> None:
    """Fewer than its shape suggests; a compressed one has no visible storage, and is no guess."""
    assert held(torch.eye(4).to_sparse_coo()) == 2 * 4 * 8 + 4 * 4
    with pytest.raises(NotImplementedError):
        held(torch.eye(4).to_sparse_csr())


def test_a_wrapper_holds_what_it_wraps() -> None:
    """A subclass that flattens into tensors counts as these: so does a DTensor, as its local shard."""
    pytest.importorskip("torch.testing._internal.two_tensor", reason="needs a torch with TwoTensor")
    from torch.testing._internal.two_tensor import TwoTensor

    assert held(TwoTensor(torch.zeros(5), torch.zeros(5))) == 40


def test_a_dtensor_holds_its_local_shard() -> None:
    """Of eight rows on two ranks, four."""
    if not hasattr(pytest.importorskip("torch.distributed.tensor", reason="needs torch 2.5"), "DTensor"):
        pytest.skip("needs torch 2.5: DTensor is not public before")
    from torch.distributed.tensor import DTensor, Shard, init_device_mesh

    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    try:
        mesh = init_device_mesh("cpu", (1,))
        tensor = DTensor.from_local(torch.zeros(4, 4), mesh, [Shard(0)], run_check=False, shape=(8, 4), stride=(4, 1))
        assert (tuple(tensor.shape), held(tensor)) == ((8, 4), 64)
    finally:
        torch.distributed.destroy_process_group()


def test_the_state_of_an_optimizer_is_searched_through() -> None:
    """Dictionaries, lists and tuples of tensors; numbers hold nothing."""
    assert held({"a": torch.zeros(2), "b": [torch.zeros(3), (torch.zeros(1), 7, None)], "step": 3}) == 24
