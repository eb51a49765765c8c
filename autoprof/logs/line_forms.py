"""Names and numbers in a line of text: ``iter 10: loss 2.31, time 12.1ms``, ``lm loss: 1.0E+01 |``, ``[1][50/100]``.

Lines that differ only in their numbers have one form. A form is parsed once, from its first line. It says which of the
numbers of a line, counted from the left, has which name; so every further line is only split at its numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from .fields import (
    FIELDS,
    METRICS,
    SETTINGS,
    TIMES,
    Meaning,
    column_of_rate,
    has_prefix_of_validation,
    is_average_loss,
    is_loss,
    is_neutral,
    is_qualifier,
    is_unit_known,
    is_unit_of_another_kind,
    lacks_thing,
    meaning_of,
    normalize_key,
    scale_of,
)

NUMBER_TOKEN: Final = (
    r"(?<![A-Za-z_\d.])(?:[-+]?(?:\d+(?:,\d{3}(?!\d))*\.?\d*|(?<!\.)\.\d+)(?:[eE][-+]?\d+)?"
    r"|[-+]?(?:nan|NaN|NAN|inf|Inf|INF|[iI]nfinity)(?![A-Za-z_]))"
)
NUMBER_IN_LINE: Final = re.compile(f"({NUMBER_TOKEN})")
"""A number that is no part of a word. Splitting a line at it gives the form and the values."""
_EPOCH_WORD: Final = re.compile(r"\[E(?=\d+\] (?:step|iter|iteration|batch)\b)")
"""The epoch in ``[E1] step 20``: a letter and a number are an epoch only where a counter of steps follows them."""
_ISO_TIME: Final = re.compile(r"(\d{4}[-/]\d\d[-/]\d\d)T(?=\d\d:\d\d)")
_BAR: Final = re.compile(r"\|[^|\d]*\| ?(?=\d|\?)|\[[=>. ━─]{4,}\]|[━─╸╺]{4,}")
BAR_SIGNS: Final = ("%|", "[=", "[..", "━", "[>")
"""Texts without which a line has no progress bar."""
_DATE: Final = re.compile(r"\d{4}[-/]\d\d[-/]\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?")
_CLOCK: Final = re.compile(r"(?:(?P<d>\d+) days?,? )?(?P<h>\d+):(?P<m>\d\d)(?::(?P<s>\d\d(?:\.\d+)?))?(?![\d:])")
_DURATION: Final = re.compile(
    r"(?=\d+ ?(?:d|h|m))(?:(?P<d>\d+) ?d(?:ays?)?,? ?)?(?:(?P<h>\d+) ?h(?:ours?)?,? ?)?(?:(?P<m>\d+) ?m(?:in)?,? ?)?"
    r"(?P<s>\d+(?:\.\d+)?) ?s(?:ec)?\b"
)
"""``1h 2m 31s``."""
_DEVIATION: Final = re.compile(r" ?(?:±|\+/?-) ?\d+\.?\d*")
_COUNT_IN_NAME: Final = re.compile(r" [A-Za-z]+\)\s*[:=]")
"""The rest of a name such as ``Time(1000 iters):`` behind its number."""
_ORDINAL: Final = re.compile(r"(?:st|nd|rd|th)\b")
"""The letters of ``95th``."""
_UNIT: Final = re.compile(
    r"(?P<space>\s)?(?P<unit>%|[kKMGBT]?\s?[A-Za-zµμ]+/(?:s(?:ec)?|second|it(?:er)?|iteration|step|batch|update)s?(?:/\w+)?|"
    r"(?:[mun]?s|µs|μs|secs?|seconds?|msec|mins?|minutes|hours?|h|m|毫秒|秒|分钟|[KMGT]i?B|bytes|T?FLOP/?[sS]|/s)|(?<=\d)[kKMGBT]B?)"
    r"(?![\w:=/])(?(space)(?!\s?[:=]))"
)
_POSITIONS: Final = (
    re.compile(r"\[(?P<epoch>\d+)(?:/\d+)?\]\s*\[\s*(?P<step>\d+)\s*/\s*(?P<of>\d+)\s*(?:\([^)]*\))?\s*\]"),
    re.compile(
        r"(?i)(?:epoch|train|training|test|val|valid|validate|validation|eval)\w*\s*:?\s*\[?(?P<epoch>\d+)\]?(?:\s*/\s*\d+)?\s*(?:\(\s*[\d.]+%\))?\s*[:,-]?\s*"
        r"\[\s*(?P<step>\d+)\s*/\s*(?P<of>\d+)\s*(?:\([^)]*\))?\s*\]"
    ),
    re.compile(r"\[E (?P<epoch>\d+)\](?= (?:step|iter|iteration|batch)\b)"),
    re.compile(r"(?:^|\] )(?P<epoch>\d+) epoch(?=[.,:] [A-Za-z])"),
    re.compile(r"[\[(|]\s*(?P<step>\d+)\s*/\s*(?P<of>\d+)\s*(?:\([^)]*\)\s*)?(?=[\])[|(<])"),
    re.compile(r"^\s*(?P<step>\d+)\s*/\s*(?P<of>\d+)(?:\s+(?=\|\||\[|-\s)|(?=, ))"),
    re.compile(r"\] \[(?P<step>\d+)\] (?=\w+=)"),
    re.compile(r"^\[ ?(?P<step>\d+) ?\] ?(?=[A-Za-z_][\w ./-]*[:=])"),
    re.compile(r"(?:^|[\s:\]])\[ ?(?P<step>\d+) ?\] \| (?=[A-Za-z_][\w./-]* ?[:= ] ?[-+.\d])"),
    re.compile(r"^(?P<step>\d+)(?=\s*\|\s*(?i:train(?:ing)?[ _])?(?i:loss)\b)"),
    re.compile(r"(?<![\w./])(?P<step>\d+)\s*/\s*(?P<of>\d+)\s+(?=(?:batches|batch|steps|iters|iterations|it)\b)"),
)
_SPLIT: Final = re.compile(
    r"(?i)(?<![\w/.=-])(?:(?P<train>train(?:ing)?(?:_inner)?)|(?P<val>val(?:id(?:ation|ating|ate)?)?|eval(?:uation|uating|uate)?|"
    r"test(?:ing)?|dev|held-?out|sanity|saving dict for|(?-i:CV)|验证))(?=\s|[:|\])>,-]|\. |$)"
)
_SECTION: Final = re.compile(
    r"(?i)(?P<end>\b(?:end(?:ed|s)?|finish(?:ed|es)?|done|completed?|resum(?:e|ed|es|ing)|back to)\b)|"
    r"(?P<train>\btrain(?:ing)?\b)|(?P<epoch>\bepochs?\W+\d)|"
    r"(?P<val>\b(?:validat(?:ing|ion|e)|evaluat(?:ing|ion|e)|eval|val|test(?:ing)?|held-?out|sanity check\w*)\b"
    r"|验证|评估)"
)
_MAX_SECTION_LINE: Final = 120
_PAIR: Final = re.compile(r"[A-Za-z_)\]]\w* ?[:=] ?[-+.\d]|[a-z] \d+\.\d")
RANK_PATTERN: Final = (
    r"\b(?:[Rr]ank|RANK|default|[Gg]lobal [Rr]ank|[Ll]ocal [Rr]ank|local_rank|LOCAL_RANK)[\s_:=]?\s?(\d+)\b"
)
TIME_PATTERN: Final = r"(\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?)"
_KEY: Final = re.compile(
    r"(?P<key>[^\W\d][^,;|\[\](){}<>\"':=：，；。#*]*(?:\s?[\[(][A-Za-z%/_, ]+[\])])?)\s*$"
)  # fmt: skip
_NAME: Final = re.compile(r"(?<![\w/])([A-Za-z_]\w*)(?= ?[:= ] ?[-+.]?\d)")
_GROUP: Final = re.compile(r"([A-Za-z_]\w*)\[$")
_OPENING: Final = re.compile(r"(?:tensor\(|np\.\w+\(|[\[(<~≈$\"'{\s])+$")
_LEVELS: Final = re.compile(
    r"^(?:\s*(?:INFO|DEBUG|WARNING|WARN|ERROR|TRAIN|root|__main__|main|train)\b\s*-?)+\s*(?=\S)"
)
_UNIT_OF_COUNTER: Final = re.compile(r"^epoch[.,:] ")
"""The rest of ``3 epoch.`` in front of a name."""
_EMPTY_BAR: Final = re.compile(r"\[00:00<\?, +\?\w*/s")
"""A bar of tqdm that has done nothing yet: the values behind it are those of the bar before."""
_EPOCH_SO_FAR: Final = re.compile(r"^\s*\d+/\d+ (?:\|\| )?-? ?(?:ETA: |\d+s )")
"""The bar of Keras: but for the last line of an epoch its values are means over the epoch so far."""
_TASK: Final = re.compile(r"\d{1,4}: ")
_CALL: Final = re.compile(r"\b[A-Za-z_]\w*\((?:\s*\w+=[^,()]*,){2}")
"""A call or the text of an object, such as ``Namespace(lr=0.1, epochs=90, …)``: settings, no record."""
_COMPOSITE: Final = re.compile(r"^(.+?) ?\(([A-Za-z_ ]+)\)$")
"""A name for a value and the one in parentheses behind it: ``time (data): 0.356 (0.002)``."""
_SOURCE_CODE: Final = re.compile(
    r"^\s*(?:if|elif|for|while|def|class|return|import|from|with|assert|print|raise)\b.*[:)\]]\s*$|\bf[\"']|"
    r"[=!]= \d|\w\(\)[.\[]|^\s*\w+(?:: \w+)? = .*(?:[(*\[]|$)"
)
"""A line of a program: the speedrun's logs begin with their source."""
_MAX_KEY_WORDS: Final = 6
_STEP_OF_VALIDATION: Final = re.compile(
    r"(?i)(?:val|valid|validation|eval|evaluation|test)[ _]?(?:step|iter|iteration|batch)"
)
_SENTENCE: Final = re.compile(r"(?P<key>[A-Za-z][\w ]*?) (?:at|after|for|in|of) (?:the )?[A-Za-z]+ ?[#:]? ?$")
_OF_SENTENCE: Final = re.compile(r"\s*(?::|=|is|was|->|=>)\s*")
"""The text between the numbers of ``Loss at step 2: 8.53``."""
COUNTERS: Final = frozenset({"step", "epoch"})
_ROUNDED: Final = frozenset({"k", "K", "M", "B", "G", "T"})
"""Units of rounded numbers: ``504K``."""


@dataclass(frozen=True, slots=True)
class LineNumber:
    """One number of a form."""

    key: str
    meaning: Meaning | None
    parts: tuple[tuple[int, float], ...]
    """The numbers of the line that it is made of, with their factors: one, or those of a clock (``0:32:48``)."""
    unit_known: bool = True
    """Whether the column needs no unit, or the log gives it."""
    is_named: bool = True
    """False for a number known only by its unit or its place."""

    @property
    def field(self) -> str | None:
        """The column; None for a key without a known meaning."""
        return None if self.meaning is None else self.meaning.field

    @property
    def is_measurement(self) -> bool:
        """Whether it is a measurement of training."""
        return (self.field in METRICS and self.field not in SETTINGS) or (self.meaning is None and is_loss(self.key))


@dataclass(frozen=True, slots=True)
class LineForm:
    """The common structure of lines that differ only in their numbers."""

    numbers: tuple[LineNumber, ...]
    rank: int | None = None
    """The number of the line that is the rank."""
    date: tuple[int, ...] = ()
    """The numbers of the line that are year, month, day, hour, minute, second."""
    rank_value: int | None = None
    """The rank, if it is a part of a word: ``[rank0]``."""
    is_validation: bool = False
    """Whether the line is about validation data; its counter may be that of the validation."""
    is_bar: bool = False
    """Whether the line is a progress bar, which shows the last values again and again."""
    is_epoch_so_far: bool = False
    """Whether the values are means over the epoch so far, unless the position is the end of the epoch."""

    @property
    def fields(self) -> frozenset[str]:
        """The columns of the numbers."""
        return frozenset(number.meaning.field for number in self.numbers if number.meaning is not None)

    @property
    def is_record(self) -> bool:
        """Whether the lines have a position in the run and a measurement."""
        named = any(number.is_measurement and number.is_named for number in self.numbers)
        return bool(self.fields & COUNTERS) and named

    @property
    def is_loose(self) -> bool:
        """Whether the lines have a measurement of training and no counter: they may belong to the line before."""
        known = any(number.field in METRICS or number.is_measurement for number in self.numbers if number.is_named)
        return known and not self.is_validation and not self.is_bar and not self.fields & COUNTERS

    @property
    def is_settings(self) -> bool:
        """Whether the lines have a batch and settings, and no measurement: ``run 1: lr=0.2 batch=32``."""
        counters = {number.key for number in self.numbers if number.field == "step"}
        return counters <= {"batch", "batch_id"} and "lr" in self.fields and not self.is_record

    @property
    def is_header(self) -> bool:
        """Whether the lines have an epoch, or a step, and nothing else: ``Epoch 1/5``."""
        return bool(self.numbers) and all(
            number.key == "_of" or (number.field in COUNTERS and number.is_named) for number in self.numbers
        )

    @property
    def is_numeric_record(self) -> bool:
        """Whether the lines have a named position and a number under a name that is not known, or a setting."""
        counted = any(number.field in COUNTERS and number.is_named for number in self.numbers)
        return counted and any(
            number.is_named and (number.meaning is None or number.field in ("lr", "elapsed_s", "tokens"))
            for number in self.numbers
        )


@dataclass(frozen=True, slots=True)
class FormatHints:
    """The meaning of keys in one format, where it differs from ``fields.FIELDS``."""

    rename: Mapping[str, str] = field(default_factory=dict)
    """Columns by normalized key; an empty column: the key has no known meaning in this format."""
    qualifiers: Mapping[str, str] = field(default_factory=dict)
    """Normalized keys of values that are not those of a step, each with its meaning: ``mean of the epoch so far``.

    They keep their key and get these words behind it, so that no column holds them.
    """
    spoiled_by_validation: frozenset[str] = frozenset()
    """Normalized keys of times that include the validation in the steps that validate."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Units by column, for values and keys without a unit."""
    ignore: frozenset[str] = frozenset(
        {"eta", "eta_seconds", "remaining_time", "remaining", "info", "warning", "error", "pid", "version", "v_num"}
    )
    """Normalized keys that are skipped."""

    def meaning(self, key: str) -> Meaning | None:
        """Return the meaning of a key in this format; None for an unknown key."""
        name = normalize_key(key)
        if name in self.qualifiers:
            return None
        if name in self.rename:
            return Meaning(self.rename[name], 0) if self.rename[name] else None
        return meaning_of(key)

    def qualify(self, key: str) -> str:
        """Return a key with the words that say what its value is; a key of a step's value is returned as it is."""
        words = self.qualifiers.get(normalize_key(key))
        return key if words is None else f"{key}, {words}"


def plain_line(line: str) -> str:
    """Return a line without progress bars, with single spaces and dates written in one way."""
    if any(sign in line for sign in BAR_SIGNS):
        line = _BAR.sub("|| ", line)
    if "  " in line or "\t" in line or line[:1] == " " or line[-1:] == " ":
        line = " ".join(line.split())
    if "[E" in line:
        line = _EPOCH_WORD.sub("[E ", line)
    return _ISO_TIME.sub(r"\1 ", line, count=1) if "T" in line else line


def parse_line(line: str, hints: FormatHints, unnamed: tuple[tuple[str, str], ...] = ()) -> LineForm:
    """Return the form of a line that ``plain_line`` returned, with all its numbers.

    ``unnamed`` are expressions with one group, and the column of the number in the group.
    """
    if _CALL.search(line) or _SOURCE_CODE.search(line) or _EMPTY_BAR.search(line):
        return LineForm(())
    form = _Parser(line, hints, unnamed).form()
    return replace(form, is_bar="|| " in line, is_epoch_so_far=_EPOCH_SO_FAR.match(line) is not None)


class _Parser:
    """Gives each number of one line its name, unit and place."""

    def __init__(self, line: str, hints: FormatHints, unnamed: tuple[tuple[str, str], ...]) -> None:
        self._line, self._hints, self._unnamed = line, hints, unnamed
        self._tokens = list(NUMBER_IN_LINE.finditer(line))
        self._at = {token.start(): index for index, token in enumerate(self._tokens)}
        self._found: dict[str, LineNumber] = {}
        self._taken: set[int] = set()
        """Numbers that need no name: of a date, a position, an average."""
        self._split = "train"
        self._line_split = "train"
        """What the beginning of the line says; another word counts up to the next bar."""
        self._has_begun = False
        """Whether a number with a known meaning was read."""
        self._last: LineNumber | None = None
        self._sentence = ""
        """The name of the next value: ``loss`` behind ``Loss at step 2:``."""

    def form(self) -> LineForm:
        """Return the form of the line."""
        date = self._find_date()
        rank, rank_value = self._find_rank()
        self._find_unnamed()
        positions = list(self._find_positions())
        end = 0
        for index, token in enumerate(self._tokens):
            gap = self._line[end : token.start()]
            self._follow_split(gap, index)
            end = max(end, token.end()) if index in self._taken else self._read(index, token, gap)
        self._follow_split(self._line[end:], None)
        self._find_prefix_of_validation()
        is_validation = self._line_split == "val"
        fields = {number.field for number in self._found.values()}
        for number in positions:
            if is_validation and self._is_of_processes(number):
                continue
            if is_validation and number.key in ("_position", "_of"):
                number = replace(number, key=f"_val{number.key}", meaning=None)  # of the validation, not of training
            if number.field is None or number.field not in fields:
                self._found.setdefault(number.key, number)
        if rank is None and rank_value is None:
            self._find_task()
        return LineForm(tuple(self._found.values()), rank, date, rank_value, is_validation)

    def _find_prefix_of_validation(self) -> None:
        """Read ``v_loss`` as the loss of the validation where the names of the line say so."""
        number = self._found.get("v_loss")
        if number is not None and has_prefix_of_validation(_NAME.findall(self._line)):
            self._found["v_loss"] = replace(number, meaning=Meaning("val_loss", 10))

    def _is_of_processes(self, position: LineNumber) -> bool:
        """Return whether ``(0/4)`` stands before the counter of the line: a process and their number."""
        if position.key not in ("_position", "_of"):
            return False
        at = position.parts[0][0]
        is_before = any(n.field in COUNTERS and n.is_named and n.parts[0][0] > at for n in self._found.values())
        first = at - (position.key == "_of")
        return is_before and self._line[: self._tokens[first].start()].endswith("(")

    # Numbers with a place of their own --------------------------------------------------------------------------------

    def _find_date(self) -> tuple[int, ...]:
        match = _DATE.search(self._line)
        if match is None:
            return ()
        inside = [index for start, index in self._at.items() if match.start() <= start < match.end()]
        for other in _DATE.finditer(self._line):
            self._taken |= {index for start, index in self._at.items() if other.start() <= start < other.end()}
        return tuple(inside) if len(inside) == 6 else ()

    def _find_rank(self) -> tuple[int | None, int | None]:
        match = re.search(RANK_PATTERN, self._line)
        if match is None:
            return None, None
        index = self._at.get(match.start(1))
        if index is None:
            return None, int(match[1])
        self._taken.add(index)
        return index, None

    def _find_task(self) -> None:
        """Note the number and the colon that ``srun --label`` puts before each line, if the line names its step."""
        is_used = any(part[0] == 0 for number in self._found.values() for part in number.parts)
        names_step = any(number.field == "step" and number.is_named for number in self._found.values())
        if _TASK.match(self._line) and names_step and not is_used and 0 not in self._taken:
            self._found["_task"] = LineNumber("_task", None, ((0, 1.0),), is_named=False)

    def _find_unnamed(self) -> None:
        for number, (pattern, column) in enumerate(self._unnamed):
            match = re.search(pattern, self._line)
            index = None if match is None else self._at.get(match.start(1))
            if index is not None:
                self._taken.add(index)
                self._found[f"{column}_{number}"] = LineNumber(
                    f"{column}_{number}", Meaning(column, 0), ((index, 1.0),)
                )

    def _find_positions(self) -> Iterator[LineNumber]:
        """Yield the counters without a name, as ``[3][50/1251]``, ``Train: 3 [50/1251 (4%)]`` and ``| 50/100 [``."""
        for pattern in _POSITIONS:
            for match in pattern.finditer(self._line):
                starts = {name: match.start(name) for name in match.groupdict()}
                if any(self._at.get(start) is None or self._at[start] in self._taken for start in starts.values()):
                    continue
                before = self._line[: match.start()].rstrip(" :=").rpartition(" ")[2].lower().strip("[]()")
                if "epoch" not in starts and hints_at_counter(before):
                    continue  # ``Epoch [1/3]``: named
                self._taken |= {index for start, index in self._at.items() if match.start() <= start < match.end()}
                self._taken.discard(-1)
                for name, meaning in (("epoch", Meaning("epoch", 90)), ("step", Meaning("step", 90)), ("of", None)):
                    if name in starts:
                        key = {"epoch": "_epoch", "step": "_position", "of": "_of"}[name]
                        yield LineNumber(key, meaning, ((self._at[starts[name]], 1.0),), is_named="epoch" in starts)
                return

    def _follow_split(self, gap: str, index: int | None) -> None:
        """Note which data the following numbers are about."""
        at_start = not self._has_begun
        if not at_start and re.search(r"[|;]", gap):
            self._split = self._line_split
        for match in _SPLIT.finditer(gap):
            rest = gap[match.end() :]
            is_key = index is not None and re.match(r"^[\s_-]*\w[\w ]*\s*[:= ]\s*[\[(\"']*$", rest) is not None
            if index is not None and is_key and not re.match(r"\s*(?i:(?:global )?step|iter|epoch|batch\b)", rest):
                begin = self._tokens[index].start() - len(rest)
                if at_start and not self._says_other(match["train"] is None, self._line[begin:].lower()):
                    self._line_split = "train" if match["train"] else "val"  # ``Valid acc: 0.8 | loss: 9.4``
                continue  # ``val loss 2.1``: a part of the name
            if (
                index is not None
                and self._hints.meaning(self._key(gap)[0] or "?") is not None
                and not rest.strip(" :=")
            ):
                continue  # ``loss train: 2.3``
            if not at_start and re.search(r"[|;]", rest):
                continue
            self._split = "train" if match["train"] else "val"
            if at_start:
                self._line_split = self._split

    @staticmethod
    def _says_other(is_validation: bool, rest: str) -> bool:
        """Return whether the rest of a line in lower case says that only the next name is of this kind of data."""
        if is_validation:
            return re.match(r"[\s_-]*loss|.*train|.*\btr_", rest) is not None
        return re.search(r"\b(?:val|eval|test|dev)", rest) is not None

    # Numbers with a name ----------------------------------------------------------------------------------------------

    def _read(self, index: int, token: re.Match[str], gap: str) -> int:
        """Read one number; return the end of what belongs to it."""
        after = self._line[token.end() :]
        clock = self._clock(token)
        if clock is not None:
            return self._read_clock(index, clock, gap)
        stripped = gap.strip()
        if self._last is not None and stripped in ("/", "of") and self._last.field in COUNTERS:
            if self._last.field == "step":
                self._found.setdefault("_of", LineNumber("_of", None, ((index, 1.0),)))
            return token.end()
        opens = self._last is not None and re.fullmatch(r"(?:/s)?\s*,?\s*\(\s*", gap) is not None
        if opens and not after.startswith("/") and not self._is_another_rate(token):
            return self._read_average(index, token)
        if self._last is not None and stripped in ("±", "+-", "+/-"):
            unit = _UNIT.match(self._line, token.end())
            return unit.end() if unit is not None else token.end()
        if re.search(r"\w\($", gap) and _COUNT_IN_NAME.match(after):
            self._last = None
            return token.end()
        deviation = _DEVIATION.match(self._line, token.end())
        unit = _UNIT.match(self._line, token.end() if deviation is None else deviation.end())
        sentence, self._sentence = self._sentence, ""
        if sentence and _OF_SENTENCE.fullmatch(gap):
            number = self._make(sentence, index, unit["unit"].strip() if unit is not None else None, token)
            self._last = number
            if number is not None:
                self._found.setdefault(number.key, number)
            return token.end()
        chinese = re.match(r"\s?(轮|步|次迭代)", after) if gap.rstrip().endswith("第") else None
        if chinese is not None:
            name, field = ("epoch", "epoch") if chinese[1] == "轮" else ("step", "step")
            self._found.setdefault(name, LineNumber(name, Meaning(field, 1), ((index, 1.0),)))
            self._has_begun = True
            return token.end() + chinese.end()
        if not gap.rstrip().endswith((":", "=")) and re.match(r" [-+]?\d", after):
            self._last = None
            return token.end()  # ``loss 3 0.25``: which of the two?
        if unit is None and re.match(r"[A-Za-z_:]\w|\.\d|:\d|-\d", after) and not _ORDINAL.match(after):
            self._last = None
            return token.end()  # a part of a word, a version, a range
        text = unit["unit"].strip() if unit is not None else None
        stop = unit.end() if unit is not None and deviation is None else token.end()
        number = self._named(index, token, gap, text) or self._by_unit(index, text)
        self._last = None
        if number is not None:
            self._last = number
            self._has_begun |= number.meaning is not None and number.field not in COUNTERS
            self._found.setdefault(number.key, number)
            if number.field in COUNTERS:
                found = _SENTENCE.search(gap)
                self._sentence = found["key"] if found is not None else ""
        return stop

    def _clock(self, token: re.Match[str]) -> re.Match[str] | None:
        duration = _DURATION.match(self._line, token.start())
        if duration is not None:
            return duration
        match = _CLOCK.match(self._line, token.start())
        if match is None or (
            match["s"] is None and match["d"] is None and not re.match(r"[<\]]", self._line[match.end() :])
        ):
            return None
        return match

    def _read_clock(self, index: int, match: re.Match[str], gap: str) -> int:
        factors = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
        if match["s"] is None:  # tqdm writes 01:48 for 1 minute and 48 seconds
            factors |= {"h": 60.0, "m": 1.0}
        parts = []
        for name, factor in factors.items():
            at = self._at.get(match.start(name)) if match[name] is not None else None
            if at is not None:
                parts.append((at, factor))
                self._taken.add(at)
        key, _ = self._key(gap)
        meaning = self._hints.meaning(key) if key else None
        if key and meaning is not None and FIELDS[meaning.field].kind == "time":
            if meaning.is_ambiguous:
                meaning = Meaning("elapsed_s", 5)
            name = normalize_key(key)
            self._found.setdefault(name, LineNumber(name, meaning, tuple(parts)))
        self._last = None
        return match.end()

    def _read_average(self, index: int, token: re.Match[str]) -> int:
        """Skip ``(0.51)`` after a value: averages of the values before it. ``time (data): 0.4 (0.1)`` is no average."""
        close = self._line.find(")", token.end())
        close = len(self._line) if close < 0 else close
        inside = [at for start, at in self._at.items() if token.start() <= start < close]
        last = self._last
        second = re.search(r"\(([A-Za-z_ ]+)\)$", last.key) if last is not None else None
        if last is not None and second is not None and len(inside) == 1:
            unit = _UNIT.match(self._line, token.end())
            meaning = self._hints.meaning(second[1])
            number = self._with_split(normalize_key(second[1]), index, unit["unit"] if unit else None, meaning)
            self._found.setdefault(number.key, number)
        elif last is not None and len(inside) == 1 and last.meaning is not None and last.field in ("loss", "val_loss"):
            key = f"{last.key} (average)"
            self._found.setdefault(key, LineNumber(key, None, ((index, 1.0),), is_named=False))
        elif last is not None and len(inside) == 1 and last.meaning is not None and last.field == "step_time_s":
            certain = last.meaning._replace(is_ambiguous=False)  # AverageMeter: a value and the mean of all values
            self._found[last.key] = replace(last, meaning=certain)
        self._taken.update(inside)
        self._last = None
        return close + 1

    def _is_another_rate(self, token: re.Match[str]) -> bool:
        """Return whether a number in parentheses has the unit of a rate that the value before it has not."""
        unit = _UNIT.match(self._line, token.end())
        column = column_of_rate(unit["unit"]) if unit is not None else None
        return column is not None and self._last is not None and self._last.field not in (column, "steps_per_s")

    def _key(self, gap: str) -> tuple[str, str]:
        """Return the name that ends a gap, and the sign between name and number: ``:`` or a space."""
        text = _OPENING.sub("", gap.rstrip()) if _OPENING.search(gap) else gap.rstrip()
        text = text.rstrip(" \"'")
        if re.search(r"[/\\?&]$|[?&]\w+=?$", text):
            return "", " "  # a path, an address
        sign = " "
        if text.endswith((":", "=", "：", "=>", "->")):
            sign, text = ":", text.rstrip(":=：> -").rstrip(" \"'")
            text = re.sub(r"\s*\.{3,}$", "", text)
        elif re.search(r"[,;|)\]}]$", text) and not re.search(r"[A-Za-z] ?\([A-Za-z%/ ]+\)$", text):
            return "", sign
        match = _KEY.search(text)
        if match is None:
            return "", sign
        key = re.split(r"\s[-•–—]\s|\s\.\s", match["key"])[-1].strip(" .-_")
        key = _LEVELS.sub("", _UNIT_OF_COUNTER.sub("", key))
        group = _GROUP.search(text[: match.start()])
        if group is not None and sign == ":":
            key = key if group[1].lower() == key.lower() else f"{group[1]}/{key}"
        return key, sign

    def _named(self, index: int, token: re.Match[str], gap: str, unit: str | None) -> LineNumber | None:
        key, sign = self._key(gap)
        if not key:
            return None
        name = normalize_key(key)
        if name in self._hints.ignore or name.rpartition("_")[2] in self._hints.ignore:
            return None
        if sign == ":":
            if len(key.split()) > _MAX_KEY_WORDS and self._hints.meaning(key) is None:
                return None
            return self._make(key, index, unit, token)
        words = key.split()
        for count in range(min(len(words), 4), 0, -1):
            part = " ".join(words[-count:])
            meaning = self._hints.meaning(part)
            if meaning is None and not (is_loss(part) and count <= 2):
                continue
            rest_is_free = count == len(words) or meaning is None or meaning.field in (
                "step", "epoch", "loss", "val_loss", "throughput", "tokens_per_s"
            ) or (meaning.field in ("lr", "grad_norm") and _says_nothing(words[-count - 1]))  # fmt: skip
            if not rest_is_free:
                return None  # ``forward time 12ms`` is not the time of the step
            if count < len(words) and is_qualifier(words[-count - 1]):
                part = f"{words[-count - 1]} {part}"
            return self._make(part, index, unit, token)
        return None

    def _make(self, key: str, index: int, unit: str | None, token: re.Match[str]) -> LineNumber | None:
        if unit == "%" and (named := self._hints.meaning(key)) is not None and named.field in COUNTERS:
            return None  # ``Steps:  12%|``
        composite = _COMPOSITE.match(key)
        is_composite = (
            composite is not None and composite[2].lower() not in TIMES and bool(self._hints.meaning(composite[2]))
        )
        meaning = self._hints.meaning(composite[1] if is_composite and composite is not None else key)
        if meaning is None and self._line_split == "val" and _STEP_OF_VALIDATION.fullmatch(key):
            meaning = Meaning("step", 60)  # the training's or its own: the values of all lines decide
        if self._split == "val" and normalize_key(key) in self._hints.qualifiers:
            return self._with_split(normalize_key(key), index, unit, meaning_of(key))  # the result of a validation
        if is_composite and meaning is not None:
            meaning = meaning._replace(is_ambiguous=False)
        if meaning is not None and meaning.field == "rank":
            return None
        column = column_of_rate(unit)
        if column is not None and (meaning is None or meaning.field != column):
            if meaning is None:
                is_known = normalize_key(key) in self._hints.rename
                meaning = Meaning(column, 20) if _says_speed(key) and not is_known else None
            elif FIELDS[meaning.field].kind == "rate":
                meaning = Meaning(column, 20 + meaning.preference)
            elif meaning.field not in ("step_time_s", "data_time"):
                meaning = None
        is_time = scale_of("time", unit) is not None and unit not in _ROUNDED
        if is_time and meaning is not None and meaning.field == "step":  # ``step=235.1ms``; ``100 steps = 23.1s``
            meaning = None if key.lower().endswith("s") else Meaning("step_time_s", 5, unit)
            key = f"{key} {unit}"
        if is_time and meaning is not None and meaning.is_ambiguous and meaning.unit is None:
            meaning = meaning._replace(unit=unit)
        if meaning is not None and is_unit_of_another_kind(FIELDS[meaning.field].kind, unit):
            meaning = None  # ``mem: 45%``
        if meaning is not None and meaning.field in COUNTERS and unit in _ROUNDED:
            meaning = None  # ``step: 1.2K``
        if meaning is not None and meaning.field == "step" and not float(token[0].replace(",", "")).is_integer():
            meaning = None
        name = key if is_composite else self._hints.qualify(normalize_key(key))
        return self._with_split(name, index, unit, meaning)

    def _with_split(self, name: str, index: int, unit: str | None, meaning: Meaning | None) -> LineNumber:
        """Return a number of training, or under the name of validation."""
        if self._split == "val" and (meaning is None or meaning.field not in COUNTERS):
            if meaning is None and is_average_loss(name) and name not in self._hints.rename:
                meaning = self._hints.meaning(f"val_{name}")  # a result of validation is always a mean
            is_a_loss = meaning is not None and meaning.field in ("loss", "val_loss")
            name = name if name.startswith(("val_", "eval_", "test_", "valid_")) else f"val_{name}"
            meaning = meaning._replace(field="val_loss", preference=5) if is_a_loss and meaning is not None else None
        scale, known = self._scale(meaning, unit)
        if meaning is not None and meaning.field == "throughput" and lacks_thing(name):
            known = column_of_rate(unit) is not None or "throughput" in self._hints.units
        return LineNumber(name, meaning, ((index, scale),), known)

    def _by_unit(self, index: int, unit: str | None) -> LineNumber | None:
        """Return a number without a name whose unit is that of a rate, or of a time per step."""
        column = column_of_rate(unit)
        if unit == "/s" and self._last is not None and self._last.field == "step_time_s":
            return LineNumber("_per_s", None, ((index, 1.0),), is_named=False)
        is_keras = unit is not None and unit.endswith("s/step") and re.search(r"\ds (?:- )?\d+[mu]?s/step", self._line)
        if (
            column is None or self._split == "val" or column == "tflops" or is_keras
        ):  # Keras': the mean of the epoch so far
            return None
        name = normalize_key(str(unit))
        if name in self._hints.qualifiers:
            return LineNumber(self._hints.qualify(name), None, ((index, 1.0),), is_named=False)
        if column in {number.field for number in self._found.values()}:
            return None
        scale, known = self._scale(Meaning(column, 50), unit)
        return LineNumber(name, Meaning(column, 50), ((index, scale),), known, is_named=False)

    def _scale(self, meaning: Meaning | None, unit: str | None) -> tuple[float, bool]:
        """Return the factor to the column's unit, and whether the log gives the unit."""
        if meaning is None:
            return (scale_of("count", unit) or 1.0) if unit in _ROUNDED else 1.0, True
        kind = FIELDS[meaning.field].kind
        for candidate in (unit, meaning.unit, self._hints.units.get(meaning.field)):
            scale = scale_of(kind, candidate)
            if scale is not None:
                return scale, True
        return 1.0, is_unit_known(kind, None)


def section_of(line: str) -> bool | None:
    """Return whether a line without a measurement begins a validation (True) or ends it; None if it does neither."""
    if len(line) > _MAX_SECTION_LINE:
        return None
    found = {match.lastgroup for match in _SECTION.finditer(line)}
    if not found:
        return None
    return "val" in found and found <= {"val", "epoch"} and not _PAIR.search(line)


def _says_nothing(word: str) -> bool:
    """Return whether a word in front of a rate or a norm leaves its meaning as it is: ``param norm`` is another."""
    return is_neutral(word) or not word.isalpha()


def hints_at_counter(word: str) -> bool:
    """Return whether a word before ``[3/100]`` is the name of the counter."""
    meaning = meaning_of(re.sub(r"\(.*$", "", word)) if word else None
    return meaning is not None and meaning.field in COUNTERS


def _says_speed(key: str) -> bool:
    """Return whether an unknown name can be that of a rate, so that its unit decides."""
    return re.search(r"(?i)speed|rate|through|tput|ips|fps|perf|samples|tok|速度|吞吐", key) is not None
