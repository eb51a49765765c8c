"""The interfaces of the tools that came before autoprof: change an import line, keep working, get more.

``timing_logger`` (TimingLogger), ``global_timer`` (MyTimer) and ``profiler_wrapper`` (ProfilerWrapper);
``docs/compat.md`` has every feature of the old tools with what it is here and the test that shows it.
"""
