"""Addresses of servers: is a text one, and does a server answer there."""

from __future__ import annotations

import re
import socket
from urllib.parse import urlsplit

from ..errors import OutputError


def web_address(text: str) -> tuple[str, int] | None:
    """Return the host and the port of an address of the web; None for any other text."""
    # The schemes of servers, with their ports.
    schemes = {"http": 80, "https": 443}
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:  # a port that is none, or half an IPv6 address
        return None
    if parts.scheme not in schemes or host is None or not re.fullmatch(r"[\w.:%-]+", host):
        return None
    return host, schemes[parts.scheme] if port is None else port


def check_answer(where: str, uri: str, remedy: str) -> None:
    """Raise ``OutputError`` where ``uri`` is of the web and no server accepts a connection there.

    A client that repeats its requests would notice only after minutes. Behind a proxy nothing is tested.
    """
    from urllib.request import getproxies, proxy_bypass  # slow to import, and every session imports this module

    found = web_address(uri)
    if found is None or (urlsplit(uri).scheme in getproxies() and not proxy_bypass(found[0])):
        return
    try:
        socket.create_connection(found, timeout=5.0).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(f"{where}: no server answers at {uri} ({reason}); {remedy}") from error
