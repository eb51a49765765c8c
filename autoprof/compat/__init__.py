"""The interfaces of the tools that preceded autoprof: change an import line and keep the rest of the script.

``timing_logger`` (TimingLogger), ``global_timer`` (MyTimer) and ``profiler_wrapper`` (ProfilerWrapper);
``docs/compat.md`` lists every feature of the old tools with its counterpart here and a test.
"""
