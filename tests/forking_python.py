"""A Python that has imported torch already: it forks for each program, which then starts in a tenth of the time.

A program runs as ``python program.py``, ``python -m module`` or ``python -c code`` would run it: its own arguments,
environment, folder, standard streams, ``__main__``, interpreter exit and exit status. autoprof itself is imported by
each program anew. The command ``autoprof run`` starts its program in the same process, as it does by ``exec``. Other
command lines, such as those with options of the interpreter, run in a Python of their own.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from waiting import LIMIT_S

SERVER = """
import array, gc, importlib, io, json, multiprocessing.process, os, runpy, signal, site, socket, sys, types
import torch, torch.utils.data, torch.utils.checkpoint, torch.optim
import importlib.util
if importlib.util.find_spec("triton") is None:  # in a forked process triton prints what it leaks at exit
    import torch._dynamo  # a fake tensor imports it, which takes longer than the rest of a short training
import matplotlib.backends.backend_agg, matplotlib.figure, numpy, pydantic, rich.console, rich.live, rich.table, wrapt
import yaml

listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listening.bind(sys.argv[1])
listening.listen(64)
print("listening", flush=True)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that answer
gc.freeze()
bare_path = sys.path[1:]


def read_request(connection):
    data, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    while part := connection.recv(1 << 20):
        data += part
    return json.loads(data), descriptors


def answer(connection):
    pid = os.fork()
    if pid:
        connection.sendall(b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        os._exit(0)


while True:
    connection, _ = listening.accept()
    if not connection.recv(1, socket.MSG_PEEK):
        continue
    if not os.fork():
        break
    connection.close()
listening.close()
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
request, descriptors = read_request(connection)
answer(connection)
connection.close()
for number, descriptor in enumerate(descriptors):
    os.dup2(descriptor, number)
    os.close(descriptor)
os.chdir(request["folder"])
multiprocessing.process.ORIGINAL_DIR = os.getcwd()  # of the program, not of this server that imported the module
for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
    number = {"stdin": 0, "stdout": 1, "stderr": 2}[stream]
    opened = open(number, mode, encoding="utf-8", errors="backslashreplace" if number == 2 else "strict", closefd=False,
                  buffering=1 if number == 2 or os.isatty(number) else -1)
    setattr(sys, stream, opened)
    setattr(sys, f"__{stream}__", opened)


class Exec(BaseException):
    pass


def start_again(file, command, environment):
    kind = command[1:2] if command[1:2] in (["-m"], ["-c"]) else ["file"]
    if file != sys.executable or kind == ["file"] and command[1].startswith("-"):
        exec_other(file, command, environment)
    raise Exec([*kind, *command[1 + (kind != ["file"]):]], environment)


def start(command, environment):
    kind, name, *arguments = command
    os.environ.clear()
    os.environ.update(environment)
    places = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    first = os.path.dirname(os.path.abspath(name)) if kind == "file" else os.getcwd() if kind == "-m" else ""
    sys.path[:] = [*places, *(place for place in bare_path if place not in places)]
    if "AUTOPROF_RUN" in os.environ:  # what Python does at its start, and an import that autoprof waits for
        sys.modules.pop("sitecustomize", None)
        site.execsitecustomize()
        for module in [one for one in sys.modules if f"{one}.".startswith("torch.optim.")]:
            del sys.modules[module]
        importlib.import_module("torch.optim")
    sys.path.insert(0, first)
    sys.orig_argv[:] = [sys.executable, *(command if kind != "file" else command[1:])]
    sys.argv[:] = [{"file": name, "-m": "-m", "-c": "-c"}[kind], *arguments]
    main = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    if kind == "-m":
        runpy._run_module_as_main(name)
    elif kind == "-c":
        exec(compile(name, "<string>", "exec"), main.__dict__)
    else:
        main.__file__ = name
        with open(name, "rb") as file:
            code = compile(file.read(), name, "exec")
        exec(code, main.__dict__)


command, environment = request["command"], request["environment"]
if command[:3] == ["-m", "autoprof", "run"]:
    exec_other, os.execvpe = os.execvpe, start_again
    try:
        start(command, environment)
    except Exec as ended:
        command, environment = ended.args
    os.execvpe = exec_other
    for module in [one for one in sys.modules if one.partition(".")[0] == "autoprof"]:
        del sys.modules[module]
start(command, environment)
"""

CLIENT = """
import json, os, signal, socket, sys
where, python, *command = sys.argv[1:]
if command[:1] not in (["-m"], ["-c"]):
    command[:0] = ["file"]
starts_python = command[:2] == ["-m", "torch.distributed.run"]  # a launcher starts Python anew itself
if starts_python or command[1:2] in ([], ["-"]) or command[1].startswith("-"):
    os.execv(python, [python, *sys.argv[3:]])
with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
    server.connect(where)
    request = {"command": command, "folder": os.getcwd(), "environment": dict(os.environ)}
    data = json.dumps(request).encode()
    sent = socket.send_fds(server, [data], [0, 1, 2])
    server.sendall(data[sent:])
    server.shutdown(socket.SHUT_WR)
    status = int(server.recv(16) or 1)
if status < 0:
    signal.signal(-status, signal.SIG_DFL) if -status not in (signal.SIGKILL, signal.SIGSTOP) else None
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


class ForkingPython:
    """The server, and ``command``: what stands before a program's arguments in place of ``sys.executable``."""

    def __init__(self, folder: Path) -> None:
        (folder / "client.py").write_text(CLIENT, "utf-8")
        (folder / "server.py").write_text(SERVER, "utf-8")
        self.command = [sys.executable, "-ISE", str(folder / "client.py"), str(folder / "socket"), sys.executable]
        self._server = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(folder / "server.py"), str(folder / "socket")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "PYTHONUTF8": "1"},
            start_new_session=True,
        )
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == b"listening\n"

    def close(self) -> None:
        """End the server, and each program that hangs."""
        os.killpg(self._server.pid, signal.SIGKILL)
        self._server.communicate(timeout=LIMIT_S)
