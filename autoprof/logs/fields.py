"""The columns of a table of ``load_logs``: names, units, and the keys under which training tools log them.

``key_words`` reads keys that are not listed here, from the words that they consist of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
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
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds", "秒"), 1.0), "毫秒": 1e-3, "分钟": 60.0,
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
        "step global_step iteration iter num_updates current_steps trainer_global_step train_step _step "
        "global_steps training_step optimizer_step update updates it n_iter itr "
        "cur_iter train_iter batch_i steps iters iterations batch batch_idx batch_id total_timesteps timesteps "
        "步 步数 第 迭代 迭代次数 训练步数 "
        "全局步数 当前步数 global_step_max_steps"
    )),
    "epoch": Field("", "count", _keys(
        "epoch train_epoch epoch_train ep current_epoch epoch_num cur_epoch epoch_idx 轮 轮次 epoch轮 训练轮次"
    )),
    "loss": Field("", "plain", _keys(
        "batch_loss loss_step step_loss train_loss_step loss train_loss lm_loss total_loss tot_loss training_loss trl "
        "train_total_loss global_avg_loss loss_metrics_global_avg_loss loss_train reduced_train_loss "
        "loss_total ce_loss nll_loss mlm_loss train_ce_loss crossentropyloss train_crossentropyloss "
        "损失 训练损失 损失值 训练集loss 训练loss 训练集损失"
    )),
    "val_loss": Field("", "plain", _keys(
        "val_loss eval_loss valid_loss validation_loss tel loss_val lm_loss_value val_total_loss test_loss "
        "dev_loss val_loss_epoch 验证损失 验证集loss 验证loss 测试集loss 测试loss 验证集损失 测试集损失 测试损失"
    )),
    "throughput": Field("samples/s", "rate", _keys(
        "throughput samples_per_second samples_per_sec samples_per_s samples_s samples_sec currsamplespersec "
        "sample_per_sec images_per_sec images_per_second imgs_per_sec images_s imgs_s img_s images_sec "
        "img_sec examples_per_sec examples_per_second examples_s ips fps sps "
        "throughput_samples 吞吐 吞吐量"
    )),
    "tokens_per_s": Field("tokens/s", "rate", _keys(
        "tokens_per_s tokens_per_second tokens_per_sec tok_per_sec tok_s tok_sec toks_s tokens_s tokens_sec "
        "tps wps tokens_per_gpu_tokens_s_gpu throughput_tokens tgs "
        "tokens_per_second_per_device tokens_per_second_per_gpu tokens_throughput throughput_tps tokens_s_device "
        "tokens_sec_device tokens_s_gpu tokens_sec_gpu throughput_device_tokens_per_second"
    )),
    "step_time_s": Field("s", "time", _keys(
        "step_time iter_time iteration_time elapsed_time_per_iteration time_per_iter time_per_step "
        "step_duration sec_per_step seconds_per_step sec_per_iter s_it s_iter s_step dt batch_time batch_cost "
        "time_per_iteration time_per_batch seconds_per_batch train_step_time train_step_timing step_timing "
        "iteration_duration iter_cost step_cost avg_batch_cost last_time perf_time_per_step timing_s_step "
        "timing_step time_iter time_batch 每步耗时 步耗时 单步耗时 time seconds duration train_time 耗时"
    )),
    "steps_per_s": Field("steps/s", "rate", _keys(
        "steps_per_second steps_per_sec steps_per_s it_s it_per_s iter_s iters_per_sec steps_s ups "
        "iterations_per_second iter_per_sec batches_per_second throughput_device_batches_per_second"
    )),
    "lr": Field("", "plain", _keys(
        "lr learning_rate train_lr current_lr lr_0 lr_group0 lr_abs base_lr base_learning_rate optim0_lr0 l_r 学习率"
    )),
    "grad_norm": Field("", "plain", _keys(
        "grad_norm gradient_norm gnorm norm total_norm global_grad_norm grad_norm_total grad_l2_norm total_grad_norm "
        "optim_total_grad_norm 梯度范数"
    )),
    "memory": Field("GiB", "size", _keys(
        "memory max_memory max_mem peak_memory peak_mem maxmemallocated max_allocated max_memory_allocated "
        "memory_max_active peak_vram vram_allocated memory_allocated memallocated gpu_mem gpu_memory mem vram "
        "allocated mem_allocated cuda_memory memory_used memory_usage memory_peak peak_gpu_memory "
        "system_peak_gpu_memory 显存 显存占用"
    )),
    "data_time": Field("s", "time", _keys(
        "last_data_time data_time data data_load_time data_loading_time dataload_time data_wait batch_generator "
        "dataloader_time loader_time rank_data_time time_data data_loading reader_cost data_cost "
        "avg_reader_cost data_loader_time 数据耗时 数据加载"
    )),
    "gpu_util": Field("%", "percent", _keys(
        "gpu_util gpu_utilization gpu_utilisation utilization_gpu gpu_usage gpu_util_mean util gpu_utils "
        "gpu利用率"
    )),
    "mfu": Field("%", "percent", _keys(
        "mfu bf16_mfu model_flops_utilization"
    )),
    "tflops": Field("TFLOP/s", "rate", _keys(
        "tflops throughput_per_gpu_tflop_s_gpu throughput_per_gpu tflops_per_gpu tflop_s tflops_gpu "
        "model_tflops achieved_tflops tflop_s_device"
    )),
    "batch_size": Field("samples", "count", _keys(
        "batch_size global_batch_size bsz total_batch_size train_batch_size bs batchsize"
    )),
    "samples": Field("samples", "count", _keys(
        "samples num_samples n_samples"
    )),
    "tokens": Field("tokens", "count", _keys(
        "tokens consumed_tokens num_input_tokens_seen tokens_seen n_tokens_seen total_tokens num_tokens "
        "n_tokens ntokens_seen train_tokens trained_tokens throughput_total_tokens"
    )),
    "elapsed_s": Field("s", "time", _keys(
        "elapsed elapsed_time training_time wall wall_time time_elapsed total_time runtime total_elapsed "
        "elapsed_seconds elapsed_sec time_since_start 已用时间"
    )),
    "timestamp": Field("s", "time", _keys(
        "timestamp _timestamp start_unix unix_time created created_at datetime ts"
    )),
    "rank": Field("", "count", _keys(
        "rank local_rank global_rank process_index process_rank"
    )),
}  # fmt: skip
"""The known columns, in the order of the table."""
AMBIGUOUS_TIMES: Final = frozenset({"time", "seconds", "duration", "train_time", "耗时", "elapsed", "elapsed_time"})
"""Keys of times that some tools log per step and others since the start: the values decide."""
METRICS: Final = frozenset(FIELDS) - {
    "step", "epoch", "rank", "timestamp", "elapsed_s", "tokens", "samples", "batch_size",
}  # fmt: skip
"""Columns that are measurements: a line is a record only if it has one of them."""
SETTINGS: Final = frozenset({"lr", "batch_size"})
"""Columns that a configuration has too: alone they make no record."""

_LR_OF_OPTIMIZER: Final = re.compile(
    r"lr_(?:(?:\w*(?:adam|sgd|prop|grad|lamb|lars|lion|muon|adan|factor|shampoo|soap|sophia|optim))\w*|pg_?\d+|group_?\d+)"
)
_LR_OF_CLASS: Final = re.compile(r"(?:lr|learning_rate)[-(][A-Z]\w*\)?(?:/\w+)?")
"""Lightning's ``lr-AdamW/pg1``, PaddleClas' ``lr(Piecewise)``; ``lr_backbone`` is that of some parameters."""
_LOSS: Final = re.compile(r"(?:^|_)(?:loss|l_(?=[a-z]))|loss(?:es)?(?:$|_)|损失")
_GPU: Final = re.compile(
    r"(?:system_)?gpu_?(?P<a>\d+)_(?:util\w*|gpu|usage|load)$|(?:gpu_)?util\w*_(?:gpu_?|cuda_?)?(?P<b>\d+)$"
)
_SUFFIX: Final = re.compile(
    r"_(?:in_)?(ns|us|ms|msec|s|sec|secs|seconds|min|minutes|h|hours|b|bytes|kb|kib|mb|mib|gb|gib|pct|percent|percentage)$"
)
_BY_KEY: Final = {key: (field, at) for field, entry in FIELDS.items() for at, key in enumerate(entry.keys)}
_SPLIT_WORDS: Final = frozenset(
    {"val", "valid", "validation", "eval", "evaluation", "test", "testing", "dev", "holdout", "heldout", "验证"}
)
_AVERAGES: Final = frozenset(
    {"avg", "average", "averaged", "mean", "running", "runningavg", "ema", "smooth", "smoothed", "moving", "median"}
)
_MEANS: Final = frozenset({"avg", "average", "averaged", "mean"})
"""Words of a mean, which a result of validation always is; ``ema`` is that of another model."""
_EXTREMES: Final = frozenset(
    {"best", "min", "max", "minimum", "maximum", "lowest", "highest", "initial", "first", "final", "target", "previous",
     "prev", "micro", "p50", "p90", "p95", "p99"}
)  # fmt: skip
"""Words for one of many values, or a part of one: ``best val loss``, ``max grad norm``, ``Micro Step``."""
_NEUTRAL: Final = frozenset(
    {"train", "training", "trainer", "current", "currently", "cur", "curr", "latest", "completed", "learning", "batch",
     "minibatch", "mini", "global", "the", "at", "step", "iter", "a", "info", "with", "this"}
)  # fmt: skip
"""Words in front of a key that leave its meaning as it is."""
_END_OF: Final = frozenset({"end", "after", "finished", "done", "completed"})
_GROUPS: Final = frozenset(
    {"train", "training", "trainer", "main", "perf", "performance", "metric", "metrics", "stats", "speed", "system",
     "scalars", "charts", "log", "info", "global", "debug", "other", "progress", "throughput", "time"}
)  # fmt: skip
"""Groups (``train/loss``) that leave the meaning of a key as it is."""
_OF_ANY_DATA: Final = frozenset({"data", "loss", "losses"})
ONE_DATA_SET: Final = 200
"""Added to the preference of a validation loss whose group names its data (``val/wiki/loss``)."""
_MODELS: Final = frozenset({"actor", "policy", "model", "critic", "generator", "discriminator", "student"})
"""Groups of a model, whose learning rate or norm is that of the log if it is the only one."""
_OPTIMIZER_GROUPS: Final = frozenset({"optim", "optimizer"})
"""Groups that leave the meaning of a learning rate or a norm as it is; a time in them is the optimizer's."""
_NEVER_IN_A_GROUP: Final = frozenset({"step_time_s", "data_time"})
_RATES_OF_ANYTHING: Final = frozenset(
    {"fps", "sps", "throughput", "train_throughput", "training_throughput", "吞吐", "吞吐量"}
)
_TERMS: Final = frozenset({"ce", "nll", "mlm", "crossentropyloss", "celoss"})
"""Words in the name of a loss that is often the only term."""
_SUMMARIES: Final = frozenset(
    {"train_runtime", "train_tokens_per_second",
     "train_samples_per_second", "train_steps_per_second", "train_tokens_per_second_total",
     "eval_runtime", "num_steps", "total_flos", "loss_scale", "max_steps", "total_steps", "num_epochs", "data_size"}
)  # fmt: skip
"""Keys that look like a column and are the sum of a run, or a setting."""


_MIN_PAIRS: Final = 3
"""Names with and without ``v_`` in one record, from which on the prefix is the validation's."""


def is_loss(key: str) -> bool:
    """Return whether a key is a loss, such as ``loss_bbox``, ``l_pix`` or ``disc_loss``, but not a loss scale."""
    name = normalize_key(key)
    return (_LOSS.search(name) is not None or name.startswith("l_")) and "scale" not in name


def is_part(key: str) -> bool:
    """Return whether a loss has the name of one term, so that beside other terms it is a part of the loss."""
    return not _TERMS.isdisjoint(normalize_key(key.rpartition("/")[2]).split("_"))


def is_other_loss(key: str) -> bool:
    """Return whether a loss is no term of the loss of the step: one of validation, an average, one of many values."""
    return not (_SPLIT_WORDS | _AVERAGES | _EXTREMES).isdisjoint(re.split(r"[_/.]+", normalize_key(key)))


def of_validation(key: str) -> bool:
    """Return whether a part of a key names validation data."""
    return not _SPLIT_WORDS.isdisjoint(re.split(r"[_/.]+", normalize_key(key)))


def is_validation_word(text: str) -> bool:
    """Return whether a word names validation data."""
    return text.lower() in _SPLIT_WORDS


def is_qualifier(word: str) -> bool:
    """Return whether a word in front of a key says that the value is an average, or one of many values."""
    return word.lower() in _AVERAGES or word.lower() in _EXTREMES


def lacks_thing(key: str) -> bool:
    """Return whether a rate has the name ``throughput``, which does not say of what: samples, tokens, bytes."""
    return normalize_key(key.rpartition("/")[2]) in _RATES_OF_ANYTHING


def has_prefix_of_validation(names: Iterable[str]) -> bool:
    """Return whether names of one record stand with ``v_`` and without it, so that the prefix is the validation's.

    ``v_loss`` beside ``loss`` alone is not enough: in reinforcement learning it is the loss of the value.
    """
    known = set(names)
    return sum(name.startswith("v_") and name[2:] in known for name in known) >= _MIN_PAIRS


def is_average_loss(key: str) -> bool:
    """Return whether a key is the mean of a loss."""
    return is_loss(key) and not _AVERAGES.isdisjoint(re.split(r"[_/.]+", normalize_key(key)))


def is_neutral(word: str) -> bool:
    """Return whether a word in front of a key leaves its meaning as it is."""
    return word.lower() in _NEUTRAL


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
    is_ambiguous: bool = False
    """Whether the values decide the meaning of the key: the time of a step, or the time since the start."""


@lru_cache(maxsize=65536)
def normalize_key(key: str) -> str:
    """Return a key in lower case, with one underscore between words."""
    return re.sub(r"[^\w]+", "_", key.strip().lower()).strip("_") if key != "_step" else key


@lru_cache(maxsize=8192)
def meaning_of(key: str) -> Meaning | None:
    """Return the meaning of a key of a log; None for a key whose meaning is not certain.

    The whole key is matched first, then the key without the unit at its end (``step_time_ms``), without groups
    (``train/loss``) and without words that change nothing (``current lr``). A word that names a part (``optimizer
    time``), an average (``avg_step_time``) or validation data leaves the key without a meaning; only a loss of
    validation is ``val_loss``, also if it is an average.
    """
    name = normalize_key(key)
    match = _GPU.search(name)
    if match is not None:
        return Meaning("gpu_util", 0, "%", int(match["a"] or match["b"]))
    if _LR_OF_OPTIMIZER.fullmatch(name) or _LR_OF_CLASS.fullmatch(key.strip()):
        return Meaning("lr", 5 + name.count("pg"))
    if "/" in key and _TIME_PER_STEP.fullmatch(key.strip()):  # ``ms/batch 25.1``
        return Meaning("step_time_s", 4, key.strip().lower().partition("/")[0])
    if key in ("BT", "DT"):  # SupContrast and CMC: batch time, data time
        return Meaning("step_time_s" if key == "BT" else "data_time", 3)
    return _match_words(name, key)


def _match_words(name: str, key: str) -> Meaning | None:
    if name in _SUMMARIES:
        return None
    found = _match_key(name)
    if found is not None:
        return found
    spaced = normalize_key(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key))
    if spaced != name:
        found = _match_words(spaced, spaced)
        if found is not None:
            return found
    first, _, behind = name.partition("_")
    rate = _match_key(behind) if first in _NEUTRAL and "/" in key else None
    if rate is not None and FIELDS[rate.field].kind == "rate":  # ``Global Tokens/s``: the sign is no group's
        return rate._replace(preference=rate.preference + 1)
    parts = [normalize_key(part) for part in re.split(r"[/.]", key) if part.strip()]
    if len(parts) > 1:
        return _match_group(parts)
    words = name.split("_")
    if any(word in _SPLIT_WORDS for word in words):
        rest = _match_key("_".join(word for word in words if word not in _SPLIT_WORDS | _MEANS))
        is_a_loss = rest is not None and rest.field == "loss"
        return Meaning("val_loss", 10 + (rest.preference if rest else 0)) if is_a_loss else None
    if any(word in _AVERAGES for word in words):
        rest = _match_words("_".join(word for word in words if word not in _AVERAGES), "")
        is_result = rest is not None and rest.field == "val_loss"
        return rest._replace(preference=rest.preference + 60) if rest and is_result else None
    if len(words) > 1 and words[0] in _END_OF and words[-1] == "epoch" and set(words[1:-1]) <= {"of", "the"}:
        return Meaning("epoch", 1)
    if len(words) > 1 and words[0] in _NEUTRAL:
        rest = _match_words("_".join(words[1:]), "")
        if (
            rest is not None
            and rest.field != "batch_size"
            and not (rest.is_ambiguous and words[0] not in ("current", "cur", "curr", "latest"))
        ):
            return rest._replace(preference=rest.preference + 1)
    return None


def _match_group(parts: list[str]) -> Meaning | None:
    """Return the meaning of a key with groups, such as ``train/loss`` and ``timing_s/step``."""
    *groups, last = parts
    if any(group in _SPLIT_WORDS for group in groups):
        found = None if "train" in last else _match_words(last, "")  # the training data in the mode of validation
        if found is None or found.field not in ("loss", "val_loss"):
            return None
        is_one_set = any(group not in _GROUPS | _SPLIT_WORDS | _OF_ANY_DATA for group in groups)
        return Meaning("val_loss", 10 + found.preference + (ONE_DATA_SET if is_one_set else 0))
    if groups[-1] in ("timing_s", "timing", "times") and last in ("step", "iteration", "iter"):
        return Meaning("step_time_s", 5, "s" if groups[-1] == "timing_s" else None)
    allowed = _GROUPS | _OPTIMIZER_GROUPS | {"loss", "losses", "lr", "learning_rate", "grad_norm", "memory", last}
    found = _match_words(last, "")
    if found is None:
        return None
    if not all(group in allowed for group in groups):
        is_one = found.field in ("lr", "grad_norm") and _MODELS.issuperset(set(groups) - allowed)
        return found._replace(preference=found.preference + ONE_DATA_SET) if is_one else None
    if found.field in _NEVER_IN_A_GROUP and any(group in _OPTIMIZER_GROUPS for group in groups):
        return None
    if found.field == "loss" and "time" in groups:
        return None
    return found._replace(preference=found.preference + 1)


def _match_key(name: str) -> Meaning | None:
    if name in _BY_KEY:
        field, preference = _BY_KEY[name]
        return Meaning(field, preference, is_ambiguous=name in AMBIGUOUS_TIMES)
    suffix = _SUFFIX.search(name)
    if suffix is None:
        return None
    base = name[: suffix.start()]
    if base in ("step", "iter", "iteration", "batch") and suffix[1] in ("ms", "msec", "us"):
        return Meaning("step_time_s", 4, suffix[1])
    if base in _BY_KEY:
        field, preference = _BY_KEY[base]
        if suffix[1] in UNITS.get(FIELDS[field].kind, ()):
            return Meaning(field, preference, suffix[1], is_ambiguous=base in AMBIGUOUS_TIMES)
    return None


UNITS: Final = {"time": TIMES, "size": SIZES, "percent": PERCENT}
_STEP: Final = r"(?:it|its|iters?|iterations?|steps?|batch|batches|updates?)"
_RATES: Final = {
    "tokens_per_s": re.compile(r"[kmg]?(?:tok|toks|tokens?|words?)/s"),
    "steps_per_s": re.compile(rf"{_STEP}/s"),
    "step_time_s": re.compile(rf"(?P<time>[num]?s|sec|secs|seconds?)/{_STEP}$"),
    "throughput": re.compile(r"[kmg]?(?:samples?|images?|imgs?|im|examples?|ex|seqs?|sequences?|sents?)/s"),
    "tflops": re.compile(r"t?flops?"),
}
_TIME_PER_STEP: Final = re.compile(rf"(?i)(?:[num]?s|sec|secs|seconds?)/{_STEP}")
_THOUSANDS: Final = {"k": 1e3, "K": 1e3, "M": 1e6, "m": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}


def scale_of(kind: str, unit: str | None) -> float | None:
    """Return the factor from this unit to the column's unit; None without a unit, or for a unit of another kind."""
    if unit is None or not unit.strip():
        return None
    text = unit.strip()
    if kind == "plain":
        return _THOUSANDS.get(text) if text not in ("m", "M") else None
    if kind in UNITS:
        return UNITS[kind].get((text.lower() if kind != "time" or len(text) > 1 else text).partition("/")[0])
    if kind in ("rate", "count"):
        if text[0] in _THOUSANDS and (
            len(text) == 1 or not text[1].isalpha() or text[1:].lower().startswith(("tok", "sam", "im"))
        ):
            return _THOUSANDS[text[0]]
        return 1.0
    return None


def is_unit_of_another_kind(kind: str, unit: str | None) -> bool:
    """Return whether a unit contradicts the kind of a column: a share of the memory, a time of 3 GiB."""
    if unit is None or kind not in UNITS:
        return False
    text = unit.strip()
    return scale_of(kind, text) is None and any(
        text.lower() in units for other, units in UNITS.items() if other != kind
    )


def is_unit_known(kind: str, scale: float | None) -> bool:
    """Return whether values of this kind need no unit, or have one; ``scale`` is the result of ``scale_of``."""
    return scale is not None or kind in ("plain", "count", "rate")


def column_of_rate(unit: str | None) -> str | None:
    """Return the column of a rate's unit: ``tok/s`` is ``tokens_per_s``, ``ms/step`` is ``step_time_s``."""
    text = (unit or "").lower().replace(" ", "")
    return next((column for column, pattern in _RATES.items() if pattern.match(text)), None)
