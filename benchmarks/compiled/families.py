"""Models of many families: are all kernels joined and owned, is nothing of torch's compilation changed, and no bit?"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from autoprof.base.frame import StepFrame
from autoprof.capture.graphs.generated import GeneratedCode
from autoprof.capture.graphs.naming import CompiledGraph, follow_graphs

from ..models import TINY, Model, entropy, floats, hugging, images, pixels, small_gpt
from ..table import markdown
from .case import PHASES, Case, prepare
from .rows import RUNTIME, Frames, counted, open_session, problems, share

STEPS: Final = 16
WARM: Final = 4
BITS: Final = 3
"""Steps whose outputs, gradients and parameters are compared bit by bit."""
_HEADS: Final[dict[str, Any]] = {"num_key_value_heads": 2}
_MIXTRAL: Final[dict[str, Any]] = {"num_local_experts": 4, "num_experts_per_tok": 2}
_WIDE: Final[dict[str, Any]] = {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 2, 1], "num_labels": 5}
_PATCHES: Final[dict[str, Any]] = {
    "image_size": 32,
    "patch_size": 2,
    "embed_dim": 16,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 4,
}


def _mlp() -> Any:
    layers = (nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 5))
    return nn.Sequential(*layers), floats(32, 64, classes=5), entropy


MODELS: Final = (
    Model("mlp", _mlp, family="other"),
    small_gpt(TINY),
    *(
        hugging(architecture.removesuffix("LMHeadModel").partition("For")[0], architecture, TINY, **config)
        for architecture, config in (
            ("LlamaForCausalLM", _HEADS), ("MixtralForCausalLM", _HEADS | _MIXTRAL),
            ("BertForMaskedLM", {}), ("T5ForConditionalGeneration", {}),
        )
    ),
    hugging("Swin", "SwinForImageClassification", TINY, pixels(32), num_labels=5, **_PATCHES),
    hugging("ConvNext", "ConvNextForImageClassification", TINY, pixels(64), family="convolution", **_WIDE),
    images("torchvision", "resnet18", 2, 64, weights=None),
    hugging("Mamba", "MambaForCausalLM", TINY, family="other", state_size=4),
)  # fmt: skip
BOUNDS: Final = {"transformer": 0.05, "convolution": 0.10}
"""The largest share of the model's time in rows of several blocks."""
BY_NAME: Final = {model.name: model for model in MODELS}
names = list(BY_NAME)
QUICK: Final = "mlp"
CONTROLS: Final = 20
"""Further bare runs where bits differ: some models have other bits in one of many runs, with and without autoprof."""


class Sites:
    """The calls of kernels in the code that inductor generates, and whether each has a name and an owner."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(("joined", "unknown", "missing", "owned"), 0)
        self.graphs: list[str] = []
        """For each graph an empty text, or the reason why it has no names."""
        follow_graphs(self._take)

    def _take(self, graph: CompiledGraph) -> None:
        self.graphs.append("" if graph.kernels is not None else graph.reason)
        if graph.kernels is None:
            return
        code = GeneratedCode(graph.function, graph.kernels)
        self.counts["joined"] += len(code.kernels)
        self.counts["unknown"] += len(code.unknown)
        self.counts["missing"] += code.missing
        self.counts["owned"] += sum(bool(kernel.paths) for kernel in code.kernels)


def measure(name: str, former: dict[str, Any] | None = None) -> dict[str, Any]:
    """Train with autoprof, compiling; in a second process, given the first one's result, bare and with autoprof."""
    model = BY_NAME[name]
    case = Case(name, model.build)
    try:
        if former is None:
            return {"verdict": "first process only", "family": model.family, **_observed(case)}
        if former["verdict"] == "not run":
            return former
        bare = _bare(case)
        again = _observed(case)
        is_equal = former["bits"] == bare["bits"] == again["bits"]
        torch._dynamo.reset()
        vary = not is_equal and any(_bare(case)["bits"] != bare["bits"] for _ in range(CONTROLS))
    except ModuleNotFoundError as error:
        return {"verdict": "not run", "error": f"{error.name} is not installed"}
    wrong = list(_problems(former, bare, again))
    if not is_equal and not vary:
        wrong.append("other bits than the bare model")
    verdict = "wrong" if wrong else "right"
    return former | {"verdict": verdict, "wrong": wrong, "bare": bare, "again": again, "bits_vary": vary}


def _problems(first: dict[str, Any], bare: dict[str, Any], again: dict[str, Any]) -> Iterator[str]:
    sites = first["sites"]
    if sites["unknown"] or sites["missing"]:
        yield f"calls of kernels without a name: {sites['unknown']}, names without a call: {sites['missing']}"
    if sites["owned"] < 0.99 * sites["joined"]:
        yield f"kernels with an owner: {sites['owned']} of {sites['joined']}"
    if not first["graphs"] or not again["graphs"]:
        yield "autoprof has seen no graph"
    for reason in sorted({*first["graphs"], *again["graphs"]} - {""}):
        yield f"a graph without names: {reason}"
    for count in ("graphs", "breaks"):
        for one in (first, again):
            if one["compile"][count] != bare["compile"][count]:
                yield f"{count}: {one['compile'][count]} instead of {bare['compile'][count]}"
    for who, one in (("a bare run", bare), ("a second run", again)):
        if one["compile"]["misses"]:
            yield f"cache misses of {who} after the first: {one['compile']['misses']}"
    if first["rows"] != again["rows"]:
        yield f"other rows in a second process: {sorted(set(first['rows']) ^ set(again['rows']))[:6]}"


def _bare(case: Case) -> dict[str, Any]:
    torch._dynamo.utils.counters.clear()
    training = prepare(case)
    bits = _Bits(training)
    for at in range(BITS):
        bits.add(training.step(at)[0])
    found = {"bits": bits.digest(), "compile": _compilation()}
    torch._dynamo.reset()
    return found


def _observed(case: Case) -> dict[str, Any]:
    torch._dynamo.utils.counters.clear()
    sites, sink = Sites(), Frames()
    training = prepare(case)
    bits = _Bits(training)
    session = open_session(training, sink)
    for at in range(STEPS):
        output = training.step(at)[0]
        if at < BITS:
            bits.add(output)
        if at == BITS - 1:
            digest = bits.digest()
            bits.remove()
    session.close()
    frames = [frame for frame in sink.frames if frame.step > WARM]
    kinds, layout = _shares(frames, training.model), frames[-1].layout if frames else None
    rows = {f"{row} {phase}" for row, phase in zip(layout.names, layout.phases, strict=True)} if layout else set()
    return {
        "bits": digest, "compile": _compilation(), "sites": sites.counts, "graphs": sites.graphs, "shares": kinds,
        "rows": sorted(rows), "reasons": sink.reasons,
    }  # fmt: skip


def _compilation() -> dict[str, int]:
    counters = torch._dynamo.utils.counters
    return {
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": sum(counters["graph_break"].values()),
        "misses": counters["inductor"]["fxgraph_cache_miss"] + counters["aot_autograd"]["autograd_cache_miss"],
    }


class _Bits:
    """A hash of outputs, gradients before each update, and the parameters at the end."""

    def __init__(self, training: Any) -> None:
        self._hash = hashlib.sha256()
        self._model = training.model
        self._handle = training.optimizer.register_step_pre_hook(lambda *_: self._add_gradients())

    def _add_gradients(self) -> None:
        for parameter in self._model.parameters():
            self._add(parameter.grad)

    def add(self, output: Any) -> None:
        """Add what the model returned."""
        for one in tree_leaves(dict(output) if hasattr(output, "items") else output):
            self._add(one)

    def _add(self, tensor: Any) -> None:
        if isinstance(tensor, Tensor):
            self._hash.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())

    def digest(self) -> str:
        """Return the hash with that of the parameters and buffers of now."""
        for tensor in self._model.state_dict().values():
            self._add(tensor)
        return self._hash.hexdigest()

    def remove(self) -> None:
        """Leave the optimizer as it was."""
        self._handle.remove()


def _shares(frames: list[StepFrame], model: nn.Module) -> dict[str, float]:
    """Return the shares of the model's time in rows of several blocks, and in the compiled runtime."""
    blocks = set(_blocks(model, ""))
    sums = dict.fromkeys(("across", "runtime", "all"), 0.0)
    for frame in frames:
        layout = frame.layout
        own = layout.self_ns(frame.total_ns)
        for at, name in enumerate(layout.names):
            outer = layout.parents[at]
            if str(layout.phases[at]) not in PHASES or (layout.fqns[at] is None and "[" not in name):
                continue
            sums["all"] += own[at]
            if "[fused: " in name:
                around = layout.fqns[outer] if outer >= 0 else None
                sums["across"] += 0 if any(f"{around}.".startswith(f"{block}.") for block in blocks) else own[at]
            sums["runtime"] += own[at] if RUNTIME in name else 0
    return {kind: float(ns / sums["all"]) for kind, ns in sums.items() if sums["all"]}


def _blocks(module: nn.Module, path: str) -> Iterator[str]:
    """Yield the blocks of a model: the elements of the outermost lists of modules with children; else its children."""
    for name, child in module.named_children():
        inner = f"{path}.{name}" if path else name
        if not _is_list(module) and any(map(_is_list, child.modules())):
            yield from _blocks(child, inner)
        else:
            yield inner


def _is_list(module: nn.Module) -> bool:
    elements = list(module.children()) if isinstance(module, (nn.ModuleList, nn.Sequential)) else []
    return sum(any(True for _ in element.children()) for element in elements) >= 2


def page(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the result and the tables."""
    done = [one for one in results.values() if "again" in one]
    sites = {key: sum(one["sites"][key] for one in done) for key in (done[0]["sites"] if done else ())}
    calls = sum(sites.get(key, 0) for key in ("joined", "unknown", "missing"))
    joined, owned = sites.get("joined", 0), sites.get("owned", 0)
    yield f"{counted(results)} models right: {joined:,} of {calls:,} kernel calls joined, {owned:,} with an owner"
    rows: list[tuple[Any, ...]] = []
    for family, bound in BOUNDS.items():
        shares = [_across(one) for one in done if one["family"] == family]
        if shares:
            within = f"{sum(one <= bound for one in shares)} of {len(shares)} models, at most {max(shares):.1%}"
            rows.append((f"time in rows of several blocks, {family} nets", f"≤ {bound:.0%}", within))
    misses = sum(one[run]["compile"]["misses"] for one in done for run in ("bare", "again"))
    extra = sum(abs(one["again"]["compile"]["graphs"] - one["bare"]["compile"]["graphs"]) for one in done)
    equal = sum(one["bits"] == one["bare"]["bits"] == one["again"]["bits"] for one in done)
    rows.append(("extra graphs, among them recompilations", 0, extra))
    rows.append(("cache misses in a second process, bare or observed", 0, misses))
    rows.append(
        ("bits of outputs, gradients, parameters against the bare model", "equal", f"{equal} of {len(done)} equal")
    )
    yield from (*markdown(("figure", "wanted", "measured"), rows), "")
    header = ("model", "family", "graphs", "call sites: joined, owned", "several blocks", "runtime", "verdict")
    yield from markdown(header, (_cells(name, one) for name, one in results.items()))
    yield from problems(results)


def _across(one: Mapping[str, Any]) -> float:
    """Return the share of rows of several blocks, in that of both processes in which other programs took less time."""
    return float(min(run["shares"].get("across", 0.0) for run in (one, one["again"])))


def _cells(name: str, one: Mapping[str, Any]) -> tuple[Any, ...]:
    if "again" not in one:
        return name, "-", "-", "-", "-", "-", one["verdict"]
    sites = one["sites"]
    calls = sites["joined"] + sites["unknown"] + sites["missing"]
    joined, vary = f"{sites['joined']} of {calls}, {sites['owned']}", "; bits differ in the bare model itself"
    verdict = one["verdict"] + vary * one["bits_vary"]
    runtime = share(one["shares"].get("runtime"))
    return name, one["family"], one["compile"]["graphs"], joined, share(_across(one)), runtime, verdict
