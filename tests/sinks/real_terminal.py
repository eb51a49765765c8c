"""Run a program on a pseudo-terminal, as a job of a shell, and return the screen that it leaves."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios

from fake_terminal import Screen
from waiting import LIMIT_S

COLUMNS, ROWS = 100, 30


def output_on_terminal(*command: str, **environment: str) -> str:
    """Run a command on a terminal and return its output, control sequences included."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    variables = {"TERM": "xterm", "NO_COLOR": "1", "CI": "", "PYTHONIOENCODING": "utf-8", **environment}
    encoding = variables["PYTHONIOENCODING"]
    with subprocess.Popen(
        command,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, **variables},
        preexec_fn=os.setpgrp,  # a group of its own, as a shell's job has
    ) as program:
        os.close(slave)
        output = b""
        while True:
            if not select.select([master], [], [], LIMIT_S)[0]:
                program.kill()
                raise AssertionError(
                    f"the program on the terminal has printed nothing for {LIMIT_S} s, and has not ended"
                )
            try:
                part = os.read(master, 65536)
            except OSError:  # how a pseudo-terminal says that the program is gone
                break
            if not part:
                break
            output += part
        program.wait(LIMIT_S)
    os.close(master)
    return output.decode(encoding)


def screen_of(output: str) -> Screen:
    """Return the screen after this output."""
    screen = Screen(COLUMNS, ROWS)
    screen.feed(output.replace("\r\n", "\n"))
    return screen
