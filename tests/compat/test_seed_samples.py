"""The code samples of the documents of the old tools, word for word but for the import, run as a user runs them."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from autoprof.compat.timing_logger import TimingLogger, log_timing, set_global_timing_logger
from autoprof.sinks import load_config

IN_TRAINING = """
from autoprof.compat.timing_logger import TimingLogger, set_global_timing_logger, log_timing

# 初始化logger (在main进程中)
timing_logger = TimingLogger(
    log_dir=save_root / "logs",
    enable_console=True,
    enable_file=True,
    console_update_interval=10,  # 每10个step更新一次终端显示
    file_flush_interval=50,      # 每50个step刷新一次文件
)
set_global_timing_logger(timing_logger)

# 在需要记录耗时的地方
log_timing("模块名称", time_in_ms)
log_timing("模块名称/子模块", time_in_ms)  # 支持层次化

# 每个训练step结束时
timing_logger.step()

# 训练结束时
timing_logger.print_summary()
timing_logger.close()
"""

IN_THE_MODEL = """
from autoprof.compat.timing_logger import log_timing
import torch

class MyModule(nn.Module):
    def forward(self, x):
        # 方法1: 手动计时
        start = time.time()
        result = self.process(x)
        log_timing("MyModule/process", (time.time() - start) * 1000)
        
        # 方法2: 使用CUDA事件（更准确）
        if torch.cuda.is_available():
            start_event = torch.cuda.Event(enable_timing=True)
            end_event = torch.cuda.Event(enable_timing=True)
            
            start_event.record()
            result = self.process(x)
            end_event.record()
            
            torch.cuda.synchronize()
            elapsed_ms = start_event.elapsed_time(end_event)
            log_timing("MyModule/process", elapsed_ms)
        
        return result
"""  # noqa: W293

LOG_BLOCK = """
LOG:
  # 是否启用耗时日志
  ENABLE_TIMING_LOG: true
  
  # 是否在终端显示
  TIMING_CONSOLE: true
  
  # 是否记录到文件
  TIMING_FILE: true
  
  # 终端更新间隔（每N个step）
  TIMING_CONSOLE_INTERVAL: 10
  
  # 文件刷新间隔（每N个step）
  TIMING_FILE_INTERVAL: 50
"""  # noqa: W293


WITH_THE_PROFILER = """
from autoprof.compat.profiler_wrapper import ProfilerWrapper

def forward_fn():
    # 你的 transformer 前向/反向逻辑
    pass

with ProfilerWrapper(
    is_st=False,
    enabled_record_memory_pickle=True,
    enabled_record_cuda_average_time=True,
    enable_record_cuda_mm=True,
    enable_print_summary=True
) as profiler:
    profiler.record_function('block', forward_fn)
    # 或直接把模型前向/反向放在 with 体内
    # ...
# 结束后自动输出统计结果和可视化曲线
"""

WITH_YOUR_FORWARD = """
with ProfilerWrapper(
    is_st=True,  # or False
    enabled_record_cuda_average_time=True,
    enable_record_cuda_mm=True,
    enable_print_summary=True
) as prof:
    prof.record_function('my_forward', your_forward_fn)
    # 或者直接写在with体内：your_forward_fn()
"""


def test_the_training_sample_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It writes the log to the given folder, and prints the summary."""
    exec(IN_TRAINING, {"save_root": tmp_path, "time_in_ms": 12.5})
    (log,) = (tmp_path / "logs").glob("timing_*.log")
    text = log.read_text(encoding="utf-8")
    assert re.search(r"^模块名称 +: +12\.50ms \(", text, re.MULTILINE)
    assert re.search(r"^  - 子模块 +: +12\.50ms \[avg: +12\.50ms\]$", text, re.MULTILINE)
    assert "Timing Summary (Total 1 steps)" in capsys.readouterr().out


def test_the_model_sample_runs(tmp_path: Path) -> None:
    """Both of its ways of timing; on a CPU the first one only."""
    space: dict[str, Any] = {"nn": nn, "time": time}
    exec(IN_THE_MODEL, space)
    module = space["MyModule"]()
    module.process = nn.Linear(2, 2)
    with TimingLogger(tmp_path / "logs", enable_console=False) as logger:
        set_global_timing_logger(logger)
        module(torch.ones(1, 2))
        logger.step()
        (row,) = logger.summary().rows
    assert (row.name, row.calls) == ("MyModule/process", 2 if torch.cuda.is_available() else 1)


def test_the_configuration_sample_is_read(tmp_path: Path) -> None:
    """By the logger, and by ``autoprof.instrument``."""
    (tmp_path / "config.yaml").write_text(f"SAVE_DIR: run\n{LOG_BLOCK}", encoding="utf-8")
    settings = load_config("config.yaml")
    assert settings.sinks.console is not None
    assert settings.sinks.log is not None
    assert (settings.sinks.console.every, settings.sinks.log.flush_every) == (10, 50)
    with TimingLogger.from_config(yaml.safe_load(LOG_BLOCK), log_dir=tmp_path / "logs") as logger:
        assert logger.log_file is not None


def test_the_profiler_samples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both, in one process: tables are printed, files written, each with its model's prefix."""
    monkeypatch.chdir(tmp_path)
    layer = nn.Linear(4, 4)
    space: dict[str, Any] = {"your_forward_fn": lambda: layer(torch.ones(2, 4)).sum().backward()}
    exec(WITH_THE_PROFILER, space)
    exec(WITH_YOUR_FORWARD, space)
    found = {path.name for path in (tmp_path / "pf_logs").iterdir()}
    assert {"cogvideo_rank0_trace.json", "cogvideo_rank_0.log"} <= found
    assert {
        "opensora_rank0_trace.json", "opensora_rank0_cuda_time_plot.png", "opensora_rank_0.log",
        "opensora_rank0_memory_usage_line_chart.png", "opensora_rank0_memory_usage.txt",
    } <= found  # fmt: skip


def test_names_may_be_chinese_and_english(tmp_path: Path) -> None:
    """Columns are aligned by terminal cells."""
    with TimingLogger(tmp_path / "logs", enable_console=False) as logger:
        set_global_timing_logger(logger)
        log_timing("前向传播总耗时", 3.0)
        log_timing("backward", 2.0)
        logger.step()
        assert logger.log_file is not None
    lines = [line for line in logger.log_file.read_text(encoding="utf-8").splitlines() if "[avg" in line]
    from autoprof.reports.text import cells

    assert len({cells(line.split(":")[0]) for line in lines}) == 1
