"""A small terminal: the bytes of the console sink, and the screen that they produce."""

import io
import re

from rich.cells import cell_len

_TOKEN = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|\x1b([78D])|(\r)|(\n)|([^\x1b\r\n])", re.DOTALL)


class Screen:
    """Rows of characters with a cursor, a scroll region and one saved position, as DEC terminals have them."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.lines = [[" "] * columns for _ in range(rows)]
        self.scrolled: list[str] = []
        self.x = self.y = 0
        self.saved = (0, 0)
        self.top, self.bottom = 0, rows - 1

    def feed(self, text: str) -> None:
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            assert match, f"unknown sequence {text[position : position + 12]!r}"
            position = match.end()
            parameters, command, single, carriage, newline, char = match.groups()
            if command:
                self._control(parameters, command)
            elif single:
                self._single(single)
            elif carriage:
                self.x = 0
            elif newline:
                self.x = 0  # as a tty with ONLCR
                self._down()
            else:
                self._put(char)

    def _control(self, parameters: str, command: str) -> None:
        numbers = [int(number) if number else 0 for number in parameters.lstrip("?").split(";")]
        if command == "H":
            self.y, self.x = max(numbers[0], 1) - 1, max(numbers[1] if len(numbers) > 1 else 1, 1) - 1
        elif command == "A":
            self.y = max(self.y - max(numbers[0], 1), self.top if self.y >= self.top else 0)
        elif command == "r":
            self.top = max(numbers[0], 1) - 1
            self.bottom = (numbers[1] if len(numbers) > 1 and numbers[1] else self.rows) - 1
            self.x = self.y = 0
        elif command == "K":
            self.lines[self.y] = [" "] * self.columns if numbers[0] == 2 else self.lines[self.y][: self.x]
        elif command == "J":
            self.lines[self.y][self.x :] = [" "] * (self.columns - self.x)
            for y in range(self.y + 1, self.rows):
                self.lines[y] = [" "] * self.columns
        else:
            assert command in "mhl", f"unknown command {command!r}"

    def _single(self, single: str) -> None:
        if single == "7":
            self.saved = (self.x, self.y)
        elif single == "8":
            self.x, self.y = self.saved
        else:
            self._down()

    def _down(self) -> None:
        if self.y == self.bottom:
            self.scrolled.append("".join(self.lines.pop(self.top)).rstrip())
            self.lines.insert(self.bottom, [" "] * self.columns)
        else:
            self.y = min(self.y + 1, self.rows - 1)

    def _put(self, char: str) -> None:
        width = cell_len(char)
        if self.x + width > self.columns:
            self.x = 0
            self._down()
        line = self.lines[self.y]
        line[self.x] = char
        line[self.x + 1 : self.x + width] = [""] * (width - 1)
        self.x += width

    def resize(self, columns: int, rows: int) -> None:
        """Change the size as a terminal does: lines stay, the margins are reset."""
        kept = [line[:columns] + [" "] * (columns - len(line)) for line in self.lines[:rows]]
        self.lines = kept + [[" "] * columns for _ in range(rows - len(kept))]
        self.columns, self.rows, self.top, self.bottom = columns, rows, 0, rows - 1
        self.y = min(self.y, rows - 1)

    @property
    def text(self) -> list[str]:
        return ["".join(line).rstrip() for line in self.lines]


class TerminalStream(io.StringIO):
    """A stream that claims to be a terminal and shows the written text on a screen."""

    encoding = "utf-8"  # type: ignore[assignment]

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        super().__init__()
        self.screen = Screen(columns, rows)
        self.writes: list[str] = []
        self.broken = False

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return -2

    def write(self, text: str) -> int:
        if self.broken:
            raise BrokenPipeError("the reader is gone")
        self.writes.append(text)
        self.screen.feed(text)
        return len(text)
