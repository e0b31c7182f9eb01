"""Profiles: clusters by name. A profile is a file of client settings, as for --command-config, with the address in it:

    ~/.config/odradek/profiles/prod.properties

It may contain a password, so only its owner can read it. `~/.config/odradek/profile` names the profile in use.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odradek.cli.failures import CommandError

VARIABLE = "ODRADEK_PROFILE"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SUFFIX = ".properties"


def directory(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "odradek"


def path_of(name: str, environ: Mapping[str, str]) -> Path:
    if not NAME.fullmatch(name):
        raise CommandError(f"{name!r} is not a profile's name: letters, digits, '.', '_' and '-' are allowed")
    return directory(environ) / "profiles" / f"{name}{SUFFIX}"


def profile_names(environ: Mapping[str, str]) -> list[str]:
    return sorted(
        path.name.removesuffix(SUFFIX) for path in (directory(environ) / "profiles").glob(f"*{SUFFIX}")
    )


def in_use(environ: Mapping[str, str]) -> str | None:
    """The profile if none is named: by the environment, else by `odradek profile use`."""
    if name := environ.get(VARIABLE):
        return name
    try:
        return (directory(environ) / "profile").read_text().strip() or None
    except FileNotFoundError:
        return None


def use(name: str | None, environ: Mapping[str, str]) -> None:
    file = directory(environ) / "profile"
    if name is None:
        file.unlink(missing_ok=True)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{name}\n")


def read_profile(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    from odradek.config.sources import parse_properties

    try:
        return parse_properties(path_of(name, environ).read_text())
    except FileNotFoundError:
        there = ", ".join(profile_names(environ)) or "none"
        raise CommandError(
            f"no such profile: {name} (there are: {there}; see 'odradek profile create')"
        ) from None


def chosen_profile(asked: str | None, environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of the named profile, else of the one in use; empty if there is neither."""
    name = asked or in_use(environ)
    return read_profile(name, environ) if name else {}


def write_profile(name: str, settings: Mapping[str, str], environ: Mapping[str, str]) -> Path:
    path = path_of(name, environ)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = "".join(f"{key}={_escaped(value)}\n" for key, value in settings.items())
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _escaped(value: str) -> str:
    """Write a value as Java's properties do: a backslash before itself, line ends and a leading blank."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return f"\\{escaped}" if escaped.startswith((" ", "\f")) else escaped


def complete_profiles(incomplete: str) -> list[Any]:
    return [name for name in profile_names(os.environ) if name.startswith(incomplete)]
