"""Name a cluster, and give a command access to it.

A cluster is named by an option before or after the command, by a profile, or by the environment; the first of these
that is given counts:

    -b after the command, -b before it, --profile, ODRADEK_BOOTSTRAP_SERVER, ODRADEK_PROFILE, the profile in use,
    localhost:9092

A command that fails says so in one line and exits, always within a bounded time (`admin.access`).
"""

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from odradek.admin.access import Access, read_settings
from odradek.admin.failures import BadRequest
from odradek.cli.framework import BadParameter, Context, Option
from odradek.cli.output import output_told, warn
from odradek.cli.profiles import chosen_profile, complete_profiles

DEFAULT_BOOTSTRAP = "localhost:9092"
BOOTSTRAP_VARIABLE = "ODRADEK_BOOTSTRAP_SERVER"

BootstrapServer = Annotated[
    str | None,
    Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT[,…]",
        help=f"A broker of the cluster, or several (default: {DEFAULT_BOOTSTRAP}).",
    ),
]
CommandConfig = Annotated[
    Path | None,
    Option(
        "--command-config",
        metavar="FILE",
        is_file=True,
        help="Client settings, one name=value per line, by librdkafka's or Java's names.",
    ),
]
ProfileName = Annotated[
    str | None,
    Option(
        "--profile",
        metavar="NAME",
        complete=complete_profiles,
        help="The cluster of this profile (see 'odradek profile').",
    ),
]


@dataclass(frozen=True)
class Naming:
    """The options that name a cluster, as given in one place; None if not given."""

    bootstrap: str | None = None
    command_config: Path | None = None
    profile: str | None = None


def named_cluster(command: Naming, before: Naming, environ: Mapping[str, str]) -> Access:
    """The cluster meant by options after the command, options before it, and the environment.

    An address that is named without a profile is another cluster than that of the profile in use, so it must not get
    the credentials of that profile.
    """
    asked = command.profile or before.profile
    bootstrap = (
        command.bootstrap or before.bootstrap or (None if asked else environ.get(BOOTSTRAP_VARIABLE) or None)
    )
    settings = chosen_profile(asked, environ) if asked or bootstrap is None else {}
    file = command.command_config or before.command_config
    if file is not None:
        settings |= read_settings(file)
    address = bootstrap or settings.get("bootstrap.servers") or DEFAULT_BOOTSTRAP
    return Access(address, settings, warn=warn)


def on_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that name a cluster, and pass it that cluster as its first argument."""
    own = list(inspect.signature(command).parameters.values())[1:]

    def run(
        context: Context,
        bootstrap_server: BootstrapServer = None,
        command_config: CommandConfig = None,
        profile: ProfileName = None,
        **given: Any,
    ) -> None:
        before = context.find_root().obj or Naming()
        cluster = named_cluster(Naming(bootstrap_server, command_config, profile), before, os.environ)
        try:
            with output_told():
                command(cluster, **given)
        except BadRequest as error:
            raise BadParameter(str(error)) from None

    shared = [one for one in inspect.signature(run).parameters.values() if one.kind is not one.VAR_KEYWORD]
    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*own, *shared)]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run
