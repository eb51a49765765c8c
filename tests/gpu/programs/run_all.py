"""Run all programs, bare and under autoprof, one after the other, then check them.

    python run_all.py FOLDER [--only NAME,…] [--pack FILE.tgz] [--exec] [--total 200] [--limit 25]

torch is imported once, without CUDA; each program is a forked child (CUDA begins there), with a time limit. A child
is put into the state in which `autoprof run` puts a fresh Python: the command itself is called, and what it would have
executed is caught. Where CUDA cannot begin in a forked child, or with --exec, each child is a fresh Python.
FOLDER/NAME has profiled.out, .err, .json (the program's truth), bare1.…, runs/ (autoprof's), explain.json, status.json.
"""

import os
import sys

os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # torch.cuda.is_available() must not begin CUDA in this process
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no pool of compilers
os.environ.setdefault("COLUMNS", "110")
if os.environ.get("TRUTH_DRY") == "1":
    os.environ["OMP_NUM_THREADS"] = "1"  # threads that wait for processors would take most of the time

import argparse
import contextlib
import importlib
import json
import signal
import tarfile
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
BEGIN = time.monotonic()
LAST = ("13_compile", "14a_reduce_overhead")  # the slow ones come last


class Caught(BaseException):
    """What `autoprof run` would have executed."""


def preload():
    import torch
    import torch.optim
    import torch.utils.checkpoint
    import torch.utils.data

    wanted = [
        "numpy",
        "matplotlib",
        "matplotlib.figure",
        "matplotlib.backends.backend_agg",
        "autoprof",
        "autoprof.cli",
        "autoprof.cli.run",
        "autoprof.cli.explain",
        "torch._dynamo",  # the first optimizer of a program imports it
    ]
    for name in wanted:
        begin = time.monotonic()
        try:
            importlib.import_module(name)
        except Exception as error:
            print(f"preload {name}: {type(error).__name__}: {error}", flush=True)
        took = time.monotonic() - begin
        if took > 1:
            print(f"preload {name}: {took:.1f} s", flush=True)
    return torch


def finish(status):
    """End a child as Python ends."""
    import atexit
    import threading

    try:
        threading._shutdown()
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(status)


def run_as_main(program):
    """Run a file as `python file` does, in this process; return its exit status."""
    import types

    module = types.ModuleType("__main__")
    module.__file__, module.__builtins__ = str(program), __builtins__
    sys.modules["__main__"] = module
    sys.argv, sys.path[0] = [str(program)], str(program.parent)
    try:
        exec(compile(program.read_text(), str(program), "exec"), module.__dict__)
    except SystemExit as error:
        code = error.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
        return 0 if code is None else code if isinstance(code, int) else 1
    except BaseException:
        sys.last_type, sys.last_value, sys.last_traceback = sys.exc_info()
        traceback.print_exc()
        return 1
    return 0


def profiled(program, folder, fresh):
    """Call `autoprof run`; where it would replace this process, begin as the new Python would."""
    from autoprof.cli import main

    arguments = ["run", "--output", str(folder / "runs"), str(program)]
    if fresh:
        return main(arguments)  # does not return

    def catch(file, command, environment):
        raise Caught(command, environment)

    real, os.execvpe = os.execvpe, catch
    try:
        return main(arguments)
    except Caught as caught:
        environment = caught.args[1]
    finally:
        os.execvpe = real
    for key in set(os.environ) - set(environment):
        del os.environ[key]
    os.environ.update(environment)
    from autoprof._launch import startup

    startup.begin(environment["PYTHONPATH"].split(os.pathsep)[0])
    for hook in [one for one in sys.meta_path if type(one).__name__ == "ImportHook"]:
        sys.meta_path.remove(hook)  # torch is imported already
        hook._imported(sys.modules[hook._name])
    return run_as_main(program)


def child(program, folder, way, environment, fresh):
    """In the forked process. Does not return."""
    os.setsid()
    out = os.open(folder / f"{way}.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    err = os.open(folder / f"{way}.err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0), os.dup2(out, 1), os.dup2(err, 2)
    os.environ.update(environment)
    os.environ["TRUTH_SAVE"] = str(folder / f"{way}.json")
    os.environ.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)
    os.chdir(folder)
    status = 1
    try:
        if not fresh and os.environ.get("TRUTH_DRY") != "1":
            import torch

            if torch._C._cuda_isInBadFork():
                fresh = True
        if way.startswith("bare"):
            if fresh:
                os.execv(sys.executable, [sys.executable, str(program)])
            status = run_as_main(program)
        else:
            status = profiled(program, folder, fresh)
    except BaseException:
        traceback.print_exc()
    finish(status)


def run(program, folder, way, limit, environment=None, fresh=False):
    """Run a program once; return its exit status or a word, and the seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{way}.json").unlink(missing_ok=True)
    begin = time.monotonic()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        try:
            child(program, folder, way, environment or {}, fresh)
        finally:
            os._exit(97)
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        if time.monotonic() - begin > limit:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, number)
                for _ in range(20):
                    if not done:
                        done, status = os.waitpid(pid, os.WNOHANG)
                        time.sleep(0.05)
            if not done:
                os.waitpid(pid, 0)
            return f"TIMEOUT (over {limit:.0f} s)", time.monotonic() - begin
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # what the child has left behind
    code = os.waitstatus_to_exitcode(status)
    return code, time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--only", default="", help="names or beginnings of names, by commas")
    parser.add_argument("--pack", help="write the folder into this .tgz at the end")
    parser.add_argument("--exec", action="store_true", dest="fresh", help="a fresh Python for each program")
    parser.add_argument("--total", type=float, default=200.0, help="seconds for everything")
    parser.add_argument("--limit", type=float, default=25.0, help="seconds for a program")
    options = parser.parse_args()
    base = Path(options.folder).resolve()
    base.mkdir(parents=True, exist_ok=True)
    programs = sorted(path for path in HERE.glob("[0-9]*.py"))
    if options.only:
        programs = [p for p in programs if any(p.stem.startswith(one) for one in options.only.split(","))]
    programs.sort(key=lambda path: (path.stem in LAST, path.stem))
    torch = preload()
    print(f"torch {torch.__version__} imported, {time.monotonic() - BEGIN:.1f} s", flush=True)
    from check import check, expectation, table

    reserve = 12.0  # for the checks
    notes = []
    for program in programs:
        expected = expectation(program.stem)
        folder = base / program.stem
        folder.mkdir(parents=True, exist_ok=True)
        states = {}
        for way in [*(f"bare{i + 1}" for i in range(expected.get("bare", 0))), "profiled"]:
            left = options.total - reserve - (time.monotonic() - BEGIN)
            limit = min(expected.get("limit_s", options.limit), left)
            if left < 3:
                states[way] = "not run: no time left"
                continue
            try:
                states[way], took = run(program, folder, way, limit, expected.get("env"), options.fresh)
            except Exception as error:
                states[way], took = f"{type(error).__name__}: {error}", 0.0
            print(f"{time.monotonic() - BEGIN:6.1f} s  {program.stem} {way}: {states[way]}, {took:.1f} s", flush=True)
            if states[way] != 0:
                tail = (folder / f"{way}.err").read_text(errors="replace").strip().splitlines()[-3:]
                notes.append(f"{program.stem} {way}: {states[way]}: " + " | ".join(tail))
        (folder / "status.json").write_text(json.dumps(states))
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            text = table(check(base, [program.stem for program in programs]))
            (base / "table.txt").write_text(text + "\n")
            print(text, flush=True)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    begin = time.monotonic()
    while time.monotonic() - begin < 60:
        if os.waitpid(pid, os.WNOHANG)[0]:
            break
        time.sleep(0.05)
    else:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        print(f"the checks took over 60 s; later: python {HERE / 'check.py'} {base}")
    for note in notes:
        print("FAILED", note)
    if options.pack:
        try:
            with tarfile.open(options.pack, "w:gz") as archive:
                archive.add(base, "truth")
        except Exception as error:
            print(f"not packed: {error}")
    print(f"all: {time.monotonic() - BEGIN:.1f} s", flush=True)


if __name__ == "__main__":
    main()
