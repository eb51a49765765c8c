"""Checks of the installation: versions, the off switch, the output folder."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from .._capture.marks.native import require_extension
from .._core.units import format_bytes
from .._process.switch import SWITCH, is_off
from ..errors import SessionError
from ..sinks import Config, writes_files
from .result import OK, PROBLEM, UNKNOWN, WARNING, Result


def check_versions(distribution: str = "torch-autoprof") -> Result:
    """Compare Python and every required package with the ranges that the distribution declares."""
    from packaging.requirements import Requirement  # a dependency of matplotlib
    from packaging.specifiers import SpecifierSet

    try:
        about = metadata.metadata(distribution)
    except metadata.PackageNotFoundError:
        message = f"{distribution} is not installed as a package, so its version ranges are unknown"
        return Result("versions", UNKNOWN, message, "install it with pip")
    needed = [Requirement(line) for line in metadata.requires(distribution) or ()]
    allowed = {one.name: one.specifier for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})}
    found = {"python": platform.python_version(), **{name: metadata.version(name) for name in allowed}}
    allowed["python"] = SpecifierSet(about["Requires-Python"] or "")
    outside = [
        f"{name} {version} is outside {allowed[name]}"
        for name, version in found.items()
        if not allowed[name].contains(version, prereleases=True)
    ]
    if outside:
        return Result("versions", PROBLEM, "; ".join(outside), "pip install --upgrade torch-autoprof", found)
    try:
        require_extension()
    except SessionError as error:
        return Result("versions", PROBLEM, str(error), "pip install --force-reinstall torch-autoprof", found)
    shown = ", ".join(f"{name} {version}" for name, version in found.items() if name in ("python", "torch", "numpy"))
    return Result("versions", OK, shown, data=found)


def check_switch(environment: Mapping[str, str], config: Config) -> Result:
    """Check that recording is switched on."""
    if is_off(environment):
        message = f"{SWITCH}={environment[SWITCH]} is set: no session records anything"
        return Result("switch", WARNING, message, f"unset {SWITCH} to record")
    if not config.enabled:
        message = "the configuration has enabled: false: nothing is recorded"
        return Result("switch", WARNING, message, "set enabled: true to record")
    return Result("switch", OK, "recording is switched on")


def check_output(config: Config) -> Result:
    """Write a temporary file in the output folder, and read the free space."""
    if not writes_files(config.sinks):
        return Result("output", OK, "the configuration writes no files")
    folder = Path(os.path.abspath(config.output))
    existing = folder
    while not os.path.lexists(existing):
        existing = existing.parent
    advice = "set output to another folder in the configuration"
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"autoprof")
        free = shutil.disk_usage(existing).free
    except OSError as error:
        reason = f"{existing} is a file" if existing.is_file() else f"{existing}: {error.strerror or error}"
        message = f"runs cannot be written to {folder} ({reason})"
        return Result("output", PROBLEM, message, advice, {"folder": str(folder)})
    shown = f"runs go to {folder}, {format_bytes(free)} free"
    if free < 200 * 1024 * 1024:
        advice = f"a full disk ends the records, not the training; {advice}"
        return Result("output", WARNING, shown, advice, {"free_bytes": free})
    return Result("output", OK, shown, data={"folder": str(folder), "free_bytes": free})
