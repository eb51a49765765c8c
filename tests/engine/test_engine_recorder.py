"""A mark is one reading and one append; buffers and names are bounded, and what they lose is counted."""

import subprocess
import sys

import torch

from autoprof.devices import HostClock, device_of


def test_a_cpu_model_gets_the_host_clock() -> None:
    """No note, for nothing is missing."""
    clock, note = device_of(torch.device("cpu")).clock(torch.device("cpu"))
    assert isinstance(clock, HostClock)
    assert note is None


def test_an_accelerator_without_timed_events_gets_the_host_clock_and_says_so() -> None:
    """Not measured is said, not invented."""
    clock, note = device_of(torch.device("xpu")).clock(torch.device("xpu"))
    assert isinstance(clock, HostClock)
    assert note is not None
    assert "host times only" in note


def test_without_the_extension_instrument_says_what_to_do_and_the_rest_works() -> None:
    """A build that older sources left behind counts as none."""
    code = (
        "import sys, types; old = types.ModuleType('autoprof.capture.marks._c'); old.SOURCE_HASH = 'other'; "
        "sys.modules['autoprof.capture.marks._c'] = old; import torch, autoprof, autoprof.frontends.compare\n"
        "try: autoprof.instrument(torch.nn.Linear(1, 1), {'sinks': {}})\n"
        "except autoprof.errors.SessionError as error: print(error)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.startswith(
        "nothing can be recorded: autoprof's extension in C was built from other sources; install torch-autoprof again"
    )
