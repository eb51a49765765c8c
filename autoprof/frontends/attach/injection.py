"""For the command: pass a request to a process, through its listener or through PEP 768."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from pathlib import Path
from typing import Final

from ...errors import AutoprofError
from .exchange import LISTEN, REPLIES, SCRIPT, VARIABLE, process_folder
from .process import Process, version_of

TEXT: Final = """\
import _thread

def take():
    import json, sys
    added, ours = None, {packages!r}
    try:
        known = getattr(sys.modules.get("autoprof"), "__file__", "")
        found = known or any(one.find_spec("autoprof", None) for one in sys.meta_path)
        if ours not in sys.path and (not found or known.startswith(ours)):
            sys.path.append(added := ours)
        from autoprof.frontends.attach.arming import receive
    except Exception as error:
        found = getattr(sys.modules.get("autoprof"), "__file__", "none")
        reason = f"it has no autoprof that can attach; found: {{found}} ({{type(error).__name__}}: {{error}})"
        with open({replies!r}, "a") as file:
            file.write(json.dumps({{"state": "failed", "reason": reason}}) + "\\n")
    else:
        receive({request!r}, added)

_thread.start_new_thread(take, ())
"""
"""The code that the process executes: as little as possible on its main thread, where a signal handler may raise."""
INJECT: Final = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"
EXPLAINED: Final = {
    "not enabled": "was started with PYTHON_DISABLE_REMOTE_DEBUG or -X disable-remote-debug",
    "PermissionError": "the system forbids it (kernel.yama.ptrace_scope above 0, or a container without SYS_PTRACE)",
    "Can't find the main thread": "has just ended",
    "PyRuntime address lookup failed": "has just ended, or its interpreter was updated meanwhile",
}
"""The meaning of an error of ``sys.remote_exec``, by a part of its text."""


def pass_request(process: Process, request: Path) -> None:
    """Have the process read a request. Raises ``AutoprofError`` with a remedy where it cannot be reached."""
    if _listens(process, request):
        return
    version = version_of(process)
    if version < (3, 14):
        raise AutoprofError(
            f"attach: {process.pid}: runs Python {version[0]}.{version[1]} and does not listen; from 3.14 on any "
            f"process can be reached, an older one if it was started with {VARIABLE}=1 in its environment"
        )
    script = request.with_name(SCRIPT)
    packages = str(Path(__file__).resolve().parents[3])
    replies = str(request.with_name(REPLIES))
    script.write_text(TEXT.format(packages=packages, request=str(request), replies=replies), encoding="utf-8")
    os.chmod(script, 0o644)
    command = [process.python, "-I", "-S", "-c", INJECT, str(process.pid), str(script)]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    if asked.returncode:
        error = asked.stderr.strip().rpartition("\n")[2]
        reasons = [reason for part, reason in EXPLAINED.items() if part in asked.stderr]
        raise AutoprofError(
            f"attach: {process.pid}: {reasons[0] if reasons else error}; "
            f"a process that is started with {VARIABLE}=1 listens without this"
        )


def _listens(process: Process, request: Path) -> bool:
    """Write the request's path to the pipe of the process's listener; return False where it has none."""
    pipe = process_folder(process.pid, process.uid) / LISTEN
    for _ in range(20):
        try:
            file = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            time.sleep(0.05)  # it takes the request of another command now
            continue
        try:
            os.write(file, f"{request}\n".encode())
        finally:
            os.close(file)
        return True
    return False
