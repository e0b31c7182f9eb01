"""`odradek profile`: name clusters once, with their addresses and credentials, and choose them by name."""

import os
from pathlib import Path
from typing import Annotated

from odradek.admin.access import read_settings
from odradek.cli import profiles
from odradek.cli.access import BootstrapServer, CommandConfig
from odradek.cli.arguments import JsonOutput, key_value
from odradek.cli.danger import Yes, confirm
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, BadParameter, Group, Option
from odradek.cli.output import print_columns, print_json, print_line

app = Group(
    help="Give clusters names, and choose one with --profile, ODRADEK_PROFILE or 'odradek profile use'.",
)

SECRETS = ("password", "secret", "jaas", "token", "pem", "key")
HIDDEN = "(hidden)"

NewName = Annotated[str, Argument(metavar="NAME")]
Name = Annotated[str, Argument(metavar="NAME", complete=profiles.complete_profiles)]


def shown(settings: dict[str, str]) -> dict[str, str]:
    """Return the settings without secrets, for the screen."""
    return {
        key: HIDDEN if any(part in SECRETS for part in key.replace("_", ".").split(".")) else value
        for key, value in settings.items()
    }


@app.command()
def create(
    name: NewName,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    set_: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="A client setting; repeatable."),
    ] = None,
    replace: Annotated[bool, Option("--replace", help="Replace a profile of that name.")] = False,
    as_json: JsonOutput = False,
) -> None:
    """Create a profile. Address and client settings are kept in a file that only you can read."""
    if not bootstrap_server:
        raise BadParameter("give the cluster's address with -b", param_hint="-b")
    if profiles.path_of(name, os.environ).exists() and not replace:
        raise CommandError(f"profile {name} already exists: add --replace to overwrite it")
    settings = _file_settings(command_config) | dict(map(key_value, set_ or ()))
    path = profiles.write_profile(name, {"bootstrap.servers": bootstrap_server} | settings, os.environ)
    if as_json:
        print_json({"profile": name, "file": str(path), "created": True})
    else:
        print_line(f"Created profile {name} in {path}.")


def _file_settings(file: Path | None) -> dict[str, str]:
    settings = read_settings(file) if file else {}
    settings.pop("bootstrap.servers", None)
    return settings


@app.command("list")
def list_(as_json: JsonOutput = False) -> None:
    """List profiles with their addresses."""
    used = profiles.in_use(os.environ)
    found = [(name, profiles.read_profile(name, os.environ)) for name in profiles.profile_names(os.environ)]
    if as_json:
        print_json(
            [
                {"profile": name, "in_use": name == used, "bootstrap": settings.get("bootstrap.servers")}
                for name, settings in found
            ]
        )
        return
    rows = [
        (name, settings.get("bootstrap.servers"), "yes" if name == used else "no") for name, settings in found
    ]
    print_columns(("PROFILE", "BOOTSTRAP-SERVER", "IN-USE"), rows)


@app.command()
def show(name: Name, as_json: JsonOutput = False) -> None:
    """Show the settings of a profile, without its secrets."""
    settings = shown(profiles.read_profile(name, os.environ))
    if as_json:
        print_json({"profile": name, "settings": settings})
        return
    for key, value in settings.items():
        print_line(f"{key}={value}")


@app.command()
def use(
    name: Annotated[str | None, Argument(metavar="NAME", complete=profiles.complete_profiles)] = None,
    none: Annotated[bool, Option("--none", help="Use no profile.")] = False,
    as_json: JsonOutput = False,
) -> None:
    """Use a profile from now on, unless another cluster is named."""
    if (name is None) != none:
        raise BadParameter("name a profile, or give --none")
    if name is not None:
        profiles.read_profile(name, os.environ)
    profiles.use(name, os.environ)
    if as_json:
        print_json({"profile": name, "in_use": name is not None})
    else:
        print_line(f"Using profile {name}." if name else "Using no profile.")


@app.command()
def delete(name: Name, yes: Yes = False, as_json: JsonOutput = False) -> None:
    """Delete a profile. Asks first, unless --yes is given."""
    profiles.read_profile(name, os.environ)
    confirm(f"Delete profile {name}?", yes)
    profiles.path_of(name, os.environ).unlink()
    if profiles.in_use({**os.environ, profiles.VARIABLE: ""}) == name:
        profiles.use(None, os.environ)
    if as_json:
        print_json({"profile": name, "deleted": True})
    else:
        print_line(f"Deleted profile {name}.")
