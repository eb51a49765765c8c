"""Write ``docs/api.md``: the public names with their signatures and docstrings. ``make api`` runs it."""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("api.md")
MODULES = {
    "autoprof": "Profile a model, time code outside modules, read saved runs.",
    "autoprof.logs": "Read the training logs of other tools.",
    "autoprof.testing": "Doubles for tests: a clock and a device that the test moves, and a sink that keeps frames.",
}
"""The modules that define or re-export public names in ``__all__``, with a line each."""
WIDTH = 100
"""Characters of a signature on one line; a longer one has a line for each parameter."""
HEAD = """# Public API

Everything a program may rely on. Names with a leading underscore, and packages such as `autoprof.capture`, are
internal and change without notice. Times are integers of nanoseconds and sizes integers of bytes, unless the name of a
value has another unit.

<!-- Made by `make api` from the docstrings; edit those. -->
"""


def page() -> str:
    """Return the whole page as Markdown."""
    parts = [HEAD]
    for name, line in MODULES.items():
        module = importlib.import_module(name)
        parts.append(f"## `{name}`\n\n{line}\n")
        names = sorted(module.__all__, key=lambda one: (inspect.isclass(getattr(module, one)), one))
        parts += [_entry(f"{name}.{one}", getattr(module, one)) for one in names]
    return "\n".join(parts)


def _entry(title: str, value: Any) -> str:
    if not inspect.isclass(value):
        return f"### `{title}`\n\n```python\n{_signature(value)}\n```\n\n{_doc(value)}\n"
    lines = [f"### `{title}`\n"]
    bases = [
        base.__name__ for base in value.__bases__ if base not in (object, Enum, str) and not _private(base.__name__)
    ]
    if bases and issubclass(value, BaseException):
        lines.append(f"A kind of `{bases[0]}`.\n")
    lines.append(f"{_doc(value)}\n")
    if issubclass(value, Enum):
        lines.append(", ".join(f"`{one.value}`" for one in value) + "\n")
    elif rows := [*_fields(value), *_members(value)]:
        lines += ["| member | |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in rows), ""]
    return "\n".join(lines)


def _fields(value: type) -> list[tuple[str, str]]:
    """The fields of a dataclass with their types; a docstring under a field follows the type."""
    if not is_dataclass(value):
        return []
    under = _docs_under_fields(value)
    return [
        (one.name, "; ".join(part for part in (f"`{_type(one.type)}`", under.get(one.name, "")) if part))
        for one in fields(value)
        if not _private(one.name)
    ]


def _members(value: type) -> list[tuple[str, str]]:
    """The public methods and properties that the class itself defines, with the first paragraph of each docstring."""
    found = []
    for name, member in vars(value).items():
        if _private(name):
            continue
        if isinstance(member, property) or type(member).__name__ == "cached_property":
            found.append((name, _first(member.__doc__ or getattr(member, "func", member).__doc__)))
        elif inspect.isfunction(getattr(member, "__func__", member)):
            found.append((_call(getattr(value, name)), _first(inspect.getdoc(member))))
    return found


def _docs_under_fields(value: type) -> dict[str, str]:
    source = inspect.getsource(value)
    return {
        name: _first(text) for name, text in re.findall(r'^    (\w+): [^\n]*\n    """(.*?)"""', source, re.M | re.S)
    }


def _signature(value: Any) -> str:
    try:
        signature = str(inspect.signature(value))
    except (TypeError, ValueError):
        signature = "(…)"
    signature = re.sub(r"(: |-> )'([^']*)'", r"\1\2", signature).replace("(self, ", "(").replace("(self)", "()")
    text = f"{getattr(value, '__name__', value)}{signature}"
    return text if len(text) <= WIDTH else _one_parameter_a_line(text)


def _call(method: Any) -> str:
    """A method's signature on one line of a table."""
    return " ".join(_signature(method).split()).replace("( ", "(").replace(", )", ")").replace("|", "\\|")


def _one_parameter_a_line(signature: str) -> str:
    """Break a signature at the commas between its parameters."""
    head, _, rest = signature.partition("(")
    inside, _, returned = rest.rpartition(")")
    parts, depth = [""], 0
    for character in inside:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return "\n".join([f"{head}(", *(f"    {part.strip()}," for part in parts), f"){returned}"])


def _type(annotation: Any) -> str:
    return str(annotation).replace("|", "\\|")


def _doc(value: Any) -> str:
    return inspect.cleandoc(value.__doc__ or "").replace("``", "`")


def _first(doc: str | None) -> str:
    text = inspect.cleandoc(doc or "").split("\n\n")[0]
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")


def _private(name: str) -> bool:
    return name.startswith("_")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
