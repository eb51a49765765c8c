"""How variants take turns."""

from collections import Counter

import torch

from benchmarks.interleave import Measured, interleave
from benchmarks.variant import Variant
from benchmarks.workloads import Workload, tiny_layers


class Logging(Variant):
    """Write down when it is opened, stepped, flushed and closed."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log

    def open(self, workload: Workload) -> None:
        self.log.append(f"{self.name} open")

    def end_step(self) -> None:
        self.log.append(f"{self.name} step")

    def flush(self) -> None:
        self.log.append(f"{self.name} flush")

    def close(self) -> None:
        self.log.append(f"{self.name} close")


class Breaking(Variant):
    """Leave a hook on the model and fail."""

    name = "breaking"

    def open(self, workload: Workload) -> None:
        workload.modules[0].register_forward_hook(lambda *_: None)
        raise RuntimeError("it breaks models\nand says so at length")


def layers() -> Workload:
    return tiny_layers(torch.device("cpu"))


def test_every_variant_has_one_block_a_round_in_a_new_order() -> None:
    """All of a round come before any of the next, and not always in the same order."""
    log: list[str] = []
    measured = Measured()
    variants = [Logging(name, log) for name in "abcd"]
    interleave(layers(), variants, measured, rounds=range(6), steps=1, warmup=0)
    opened = [line[0] for line in log if line.endswith("open")]
    rounds = [tuple(opened[i : i + 4]) for i in range(0, len(opened), 4)]
    assert all(sorted(order) == list("abcd") for order in rounds)
    assert len(set(rounds)) > 1
    assert {name: [block.round for block in blocks] for name, blocks in measured.blocks.items()} == {
        name: list(range(6)) for name in "abcd"
    }


def test_a_variant_that_raises_is_left_out_and_its_reason_kept() -> None:
    """It is asked once, its hooks are taken off, and the others go on."""
    measured, workload, log = Measured(), layers(), []
    interleave(workload, [Breaking(), Logging("a", log)], measured, rounds=range(3), steps=1, warmup=0)
    assert measured.errors == {"breaking": "RuntimeError: it breaks models"}
    assert Counter(log)["a open"] == 3
    assert workload.hooks() == 0
