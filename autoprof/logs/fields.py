"""The columns of a table of ``load_logs``: names, units, and the keys under which training tools log them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple


@dataclass(frozen=True, slots=True)
class Field:
    """One known column of the table."""

    unit: str
    kind: str
    """The kind of its unit: ``time``, ``size``, ``percent``, ``rate``, ``count`` or ``plain``."""
    keys: tuple[str, ...]
    """Normalized keys that mean this column, the preferred one first."""


def _keys(text: str) -> tuple[str, ...]:
    return tuple(text.split())


TIMES: Final = {
    **dict.fromkeys(("ns", "nsec"), 1e-9), **dict.fromkeys(("us", "µs", "μs", "usec"), 1e-6),
    **dict.fromkeys(("ms", "msec"), 1e-3), **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minutes"), 60.0), **dict.fromkeys(("h", "hr", "hours"), 3600.0),
}  # fmt: skip
# torch's own tools and every framework here divide by 1024 and write MB: MB and MiB are read as the same.
SIZES: Final = {
    **dict.fromkeys(("b", "bytes"), 2.0**-30), **dict.fromkeys(("k", "kb", "kib"), 2.0**-20),
    **dict.fromkeys(("m", "mb", "mib"), 2.0**-10), **dict.fromkeys(("g", "gb", "gib"), 1.0),
    **dict.fromkeys(("t", "tb", "tib"), 1024.0),
}  # fmt: skip
PERCENT: Final = {"%": 1.0, "pct": 1.0, "percent": 1.0, "percentage": 1.0}

FIELDS: Final[dict[str, Field]] = {
    "step": Field("", "count", _keys(
        "step global_step iteration iter num_updates current_steps trainer_global_step train_step "
        "global_steps steps iters iterations training_step optimizer_step update updates _step it s n_iter "
        "cur_iter train_iter batch batch_idx 步 步数 第 迭代 迭代次数 global_step_max_steps"
    )),
    "epoch": Field("", "count", _keys(
        "epoch train_epoch epoch_train ep current_epoch epochs epoch_num cur_epoch 轮 轮次 epoch轮"
    )),
    "loss": Field("", "plain", _keys(
        "loss train_loss lm_loss total_loss training_loss trl train_total_loss global_avg_loss "
        "loss_metrics_global_avg_loss loss_train reduced_train_loss avg_loss mean_loss train_loss_step "
        "loss_step loss_total running_loss ce_loss nll_loss mlm_loss train_ce_loss 损失 训练损失"
    )),
    "val_loss": Field("", "plain", _keys(
        "val_loss eval_loss valid_loss validation_loss tel loss_val lm_loss_value val_total_loss test_loss "
        "dev_loss val_loss_epoch 验证损失"
    )),
    "throughput": Field("samples/s", "rate", _keys(
        "throughput samples_per_second samples_per_sec samples_per_s samples_s samples_sec currsamplespersec "
        "sample_per_sec images_per_sec images_per_second imgs_per_sec images_s imgs_s img_s images_sec "
        "img_sec examples_per_sec examples_per_second examples_s ips fps runningavgsamplespersec sps "
        "throughput_samples 吞吐 吞吐量"
    )),
    "tokens_per_s": Field("tokens/s", "rate", _keys(
        "tokens_per_s tokens_per_second tokens_per_sec tok_per_sec tok_s tok_sec toks_s tokens_s tokens_sec "
        "tps wps tokens_per_gpu_tokens_s_gpu train_tokens_per_second throughput_tokens tokens_per_gpu tgs "
        "tokens_per_second_per_device tokens_per_second_per_gpu tokens_throughput throughput_tps"
    )),
    "step_time_s": Field("s", "time", _keys(
        "step_time train_speed_s_it iter_time iteration_time elapsed_time_per_iteration time_per_iter time_per_step "
        "step_duration sec_per_step seconds_per_step sec_per_iter s_it s_iter dt batch_time "
        "time_per_iteration step_avg time last_time duration train_step_time avg_step_time time_step 每步耗时 步耗时 "
        "耗时"
    )),
    "steps_per_s": Field("steps/s", "rate", _keys(
        "train_speed_iter_s steps_per_second steps_per_sec steps_per_s it_s it_per_s iter_s iters_per_sec steps_s ups "
        "iterations_per_second"
    )),
    "lr": Field("", "plain", _keys(
        "lr learning_rate train_lr current_lr lr_0 lr_group0 base_lr 学习率"
    )),
    "grad_norm": Field("", "plain", _keys(
        "grad_norm gradient_norm gnorm norm total_norm global_grad_norm grad_norm_total grad_l2_norm 梯度范数"
    )),
    "memory": Field("GiB", "size", _keys(
        "memory max_memory max_mem peak_memory peak_mem maxmemallocated max_allocated max_memory_allocated "
        "memory_max_active peak_vram vram_allocated memory_allocated memallocated gpu_mem gpu_memory mem vram "
        "allocated mem_allocated cuda_memory memory_used memory_peak memory_reserved reserved 显存 显存占用"
    )),
    "data_time": Field("s", "time", _keys(
        "data_time data data_load_time data_loading_time dataload_time data_wait batch_generator "
        "dataloader_time loader_time rank_data_time time_data data_loading last_data_time 数据耗时 数据加载"
    )),
    "gpu_util": Field("%", "percent", _keys(
        "gpu_util gpu_utilization gpu_utilisation utilization_gpu gpu_usage gpu_util_mean util gpu_utils "
        "gpu利用率"
    )),
    "mfu": Field("%", "percent", _keys(
        "mfu model_flops_utilization hfu"
    )),
    "tflops": Field("TFLOP/s", "rate", _keys(
        "tflops throughput_per_gpu_tflop_s_gpu throughput_per_gpu tflops_per_gpu tflop_s tflops_gpu "
        "model_tflops achieved_tflops"
    )),
    "batch_size": Field("samples", "count", _keys(
        "batch_size global_batch_size bsz total_batch_size train_batch_size bs batchsize"
    )),
    "samples": Field("samples", "count", _keys(
        "samples num_samples n_samples"
    )),
    "tokens": Field("tokens", "count", _keys(
        "tokens consumed_tokens num_input_tokens_seen tokens_seen n_tokens_seen total_tokens num_tokens "
        "n_tokens ntokens_seen train_tokens trained_tokens"
    )),
    "elapsed_s": Field("s", "time", _keys(
        "elapsed elapsed_time train_time training_time wall wall_time time_elapsed total_time runtime"
    )),
    "timestamp": Field("s", "time", _keys(
        "timestamp _timestamp start_unix unix_time created created_at datetime"
    )),
    "rank": Field("", "count", _keys(
        "rank local_rank global_rank process_index process_rank"
    )),
}  # fmt: skip
"""The known columns, in the order of the table."""
METRICS: Final = frozenset(FIELDS) - {
    "step", "epoch", "rank", "timestamp", "elapsed_s", "tokens", "samples", "batch_size",
}  # fmt: skip
"""Columns that are measurements: a line is a record only if it has one of them."""

_LOSS: Final = re.compile(r"(?:^|_)loss(?:$|_)|损失")
_GPU: Final = re.compile(
    r"(?:system_)?gpu_?(?P<a>\d+)_(?:util\w*|gpu|usage|load)$|(?:gpu_)?util\w*_(?:gpu_?|cuda_?)?(?P<b>\d+)$"
)
_SUFFIX: Final = re.compile(
    r"_(ns|us|ms|msec|s|sec|secs|seconds|min|minutes|h|hours|b|bytes|kb|kib|mb|mib|gb|gib|pct|percent|percentage)$"
)
_PREFIX: Final = re.compile(
    r"^(?:train|training|perf|performance|metrics?|stats|timing|time|speed|system|optim|optimizer|scalars?)_(?=.)"
)
_BY_KEY: Final = {key: (field, at) for field, entry in FIELDS.items() for at, key in enumerate(entry.keys)}


def is_loss(key: str) -> bool:
    """Return whether a key is a loss, such as ``loss_bbox`` or ``disc_loss``, but not a loss scale."""
    name = normalize_key(key)
    return _LOSS.search(name) is not None and "scale" not in name


class Meaning(NamedTuple):
    """The meaning of a key of a log."""

    field: str
    """The column."""
    preference: int
    """0 for the preferred key of the column; of several keys for one column the lowest number wins."""
    unit: str | None = None
    """The unit in the key, as ``ms`` in ``step_time_ms``."""
    gpu: int | None = None
    """The index of the GPU, for a utilisation of one GPU."""


@lru_cache(maxsize=65536)
def normalize_key(key: str) -> str:
    """Return a key in lower case, with one underscore between words."""
    return re.sub(r"[^\w]+", "_", key.strip().lower()).strip("_") if key != "_step" else key


@lru_cache(maxsize=8192)
def meaning_of(key: str) -> Meaning | None:
    """Return the meaning of a key of a log; None for an unknown key.

    The whole key is matched first, then the key without a unit at its end (``step_time_ms``), without a group before it
    (``train/loss``), and without the words before it (``validation loss at iteration``).
    """
    name = normalize_key(key)
    match = _GPU.search(name)
    if match is not None:
        return Meaning("gpu_util", 0, "%", int(match["a"] or match["b"]))
    if re.match(r"lr_[a-z]\w*$", name) and not name.startswith("lr_scale"):  # Lightning: lr-AdamW, lr-SGD/pg1
        return Meaning("lr", 5 + name.count("pg"))
    found = _match_key(name)
    if found is not None:
        return found
    shorter = _PREFIX.sub("", name)
    if shorter != name:
        found = _match_key(shorter)
        if found is not None and not (found.field == "loss" and name.startswith("time")):
            return found._replace(preference=found.preference + 1)
    words = key.split()
    if len(words) > 1 and not any(word in name for word in ("val", "eval", "test", "scale", "aux", "consumed")):
        return meaning_of(words[-1])
    if len(words) > 1 and normalize_key(words[-1]) in ("iteration", "step", "epoch", "iter"):
        return meaning_of(words[-1])
    return None


def _match_key(name: str) -> Meaning | None:
    if name in _BY_KEY:
        return Meaning(*_BY_KEY[name])
    suffix = _SUFFIX.search(name)
    if suffix is None:
        return None
    base = name[: suffix.start()]
    if base in _BY_KEY:
        field, preference = _BY_KEY[base]
        if suffix[1] in UNITS.get(FIELDS[field].kind, ()):
            return Meaning(field, preference, suffix[1])
    return None


UNITS: Final = {"time": TIMES, "size": SIZES, "percent": PERCENT}
_RATES: Final = {
    "tokens_per_s": re.compile(r"[kmg]?(?:tok|toks|tokens?|words?)/"),
    "steps_per_s": re.compile(r"(?:it|iters?|steps?)/s"),
    "step_time_s": re.compile(r"s(?:ec)?/(?:it|iter|step)"),
    "tflops": re.compile(r"t?flops?"),
}
_THOUSANDS: Final = {"k": 1e3, "K": 1e3, "M": 1e6, "m": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}


def scale_of(kind: str, unit: str | None) -> float | None:
    """Return the factor from this unit to the column's unit; None without a unit, or for a unit of another kind."""
    if unit is None or not unit.strip():
        return None
    text = unit.strip()
    if kind in UNITS:
        return UNITS[kind].get(text.lower() if kind != "time" or len(text) > 1 else text)
    if kind in ("rate", "count"):
        if text[0] in _THOUSANDS and (
            len(text) == 1 or not text[1].isalpha() or text[1:].lower().startswith(("tok", "sam", "im"))
        ):
            return _THOUSANDS[text[0]]
        return 1.0
    return None


def is_unit_known(kind: str, scale: float | None) -> bool:
    """Return whether values of this kind need no unit, or have one; ``scale`` is the result of ``scale_of``."""
    return scale is not None or kind in ("plain", "count", "rate")


def column_of_rate(unit: str | None) -> str | None:
    """Return the column of a rate's unit: ``tok/s`` is ``tokens_per_s``, ``it/s`` is ``steps_per_s``."""
    text = (unit or "").lower().replace(" ", "")
    return next((column for column, pattern in _RATES.items() if pattern.match(text)), None)
