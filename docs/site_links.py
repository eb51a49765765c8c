"""A hook of mkdocs: links of the pages to files of the repository outside of ``docs`` lead to the repository.

``repo_url`` is the repository (``SITE_REPOSITORY`` in mkdocs.yml). A site that is built without it shows the text of
such a link. A link to a file that is missing fails a strict build.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[([^\]\n]+)\]\((\.\.?/[^)\s#]+)(#[^)\s]+)?\)")
logger = logging.getLogger("mkdocs.hooks.site_links")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Return the text of a page with its links out of ``docs`` replaced."""
    folder = Path(page.file.abs_src_path).resolve().parent

    def replaced(link: re.Match[str]) -> str:
        text, name, anchor = link[1], link[2], link[3] or ""
        target = (folder / name).resolve()
        if target.is_relative_to(ROOT / "docs") or not target.is_relative_to(ROOT):
            return link[0]
        if not target.exists():
            logger.warning("%s: the link %s leads to no file", page.file.src_uri, name)
        if not config["repo_url"]:
            return text
        kind = "tree" if target.is_dir() else "blob"
        return f"[{text}]({config['repo_url'].rstrip('/')}/{kind}/main/{target.relative_to(ROOT).as_posix()}{anchor})"

    return LINK.sub(replaced, markdown)
