"""Write ``configs/autoprof.schema.json`` and the tables of ``docs/configuration.md``: ``python -m docs.settings``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from autoprof.base.options import field_docs
from autoprof.config.describe import is_section, parts, strip_none
from autoprof.config.json_schema import json_schema
from autoprof.config.legacy import BLOCK, LegacyLog
from autoprof.sinks import SINKS, Config

ROOT: Final = Path(__file__).parents[1]
SCHEMA_FILE: Final = ROOT / "configs" / "autoprof.schema.json"
REFERENCE_FILE: Final = ROOT / "docs" / "configuration.md"
BEGIN: Final = "<!-- begin: written by python -m docs.settings -->"
END: Final = "<!-- end -->"
_PLAIN: Final = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text, in quotes if needed",
    Path: "a path",
}


def with_reference(page: str) -> str:
    """Return the page with the tables between its two marks brought up to date."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{reference_markdown()}\n{END}{after}"


def reference_markdown() -> str:
    """Return a table for each part of the configuration, from the docstrings of the schema."""
    return "\n".join([_table(key, part) for key, part in parts(Config)] + [_table(BLOCK, LegacyLog)])


def count_keys() -> int:
    """Return the number of keys of all parts, those of the old block included."""
    return sum(len(part.model_fields) for _, part in parts(Config)) + len(LegacyLog.model_fields)


def _table(key: str, part: type[BaseModel]) -> str:
    heading = f"### `{key}`" if key else "### Top level"
    about = " ".join((part.__doc__ or "").split())
    docs = field_docs(part)
    rows = [_row(name, field, field.description or docs.get(name, "")) for name, field in part.model_fields.items()]
    return "\n".join([heading, "", about, "", "| key | allowed | default | meaning |", "|---|---|---|---|", *rows, ""])


def _row(name: str, field: FieldInfo, description: str) -> str:
    meaning = " ".join(description.split()).replace("|", "\\|")
    return f"| `{name}` | {_allowed(field.annotation, field.metadata)} | {_default(field)} | {meaning} |"


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "not set"
    if isinstance(value, BaseModel):
        return "see its table"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _allowed(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """Describe the values of a type with these constraints: ``a whole number, at least 1, or null``."""
    inner, optional = strip_none(annotation)
    return _kind(inner, metadata) + _bounds(metadata) + (", or null" if optional else "")


def _choices(annotation: Any) -> list[str]:
    """Return the words of a ``Literal``, and an empty list for any other type."""
    return [str(word) for word in get_args(annotation)] if get_origin(annotation) is Literal else []


def _kind(annotation: Any, metadata: Sequence[Any]) -> str:
    if words := _choices(annotation):
        return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
    if get_origin(annotation) is tuple:
        item = get_args(annotation)[0]
        some = "one or more of " if any(isinstance(bound, MinLen) for bound in metadata) else ""
        kind = f"mappings with the keys {_keys(item)}" if is_section(item) else _allowed(*_bare(item))
        return f"a list of {some}{kind}"
    return f"a mapping with the keys {_keys(annotation)}" if is_section(annotation) else _PLAIN[annotation]


def _bare(annotation: Any) -> tuple[Any, Sequence[Any]]:
    """Split ``Annotated`` into the type and its constraints."""
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        return inner, metadata
    return annotation, ()


def _keys(model: type[BaseModel]) -> str:
    return ", ".join(model.model_fields)


def _bounds(metadata: Sequence[Any]) -> str:
    words = ""
    for bound in metadata:
        if isinstance(bound, Ge):
            words += f", at least {bound.ge}"
        elif isinstance(bound, Gt):
            words += f", above {bound.gt}"
        elif isinstance(bound, Lt):
            words += f", below {bound.lt}"
        elif isinstance(bound, Le):
            words += f", at most {bound.le}"
    return words


def main() -> int:
    """Write both files and print the number of keys; return the exit status."""
    if foreign := SINKS.entry_points:
        print(f"sinks of other packages are installed ({', '.join(sorted(foreign))})", file=sys.stderr)
        return 1
    SCHEMA_FILE.write_text(json.dumps(json_schema(Config), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    REFERENCE_FILE.write_text(with_reference(REFERENCE_FILE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{count_keys()} keys of the configuration")
    return 0


if __name__ == "__main__":
    sys.exit(main())
