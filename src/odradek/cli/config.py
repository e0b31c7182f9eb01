"""`odradek config`: the settings of topics, brokers and groups, each with its value, source and documentation."""

import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from odradek.admin.access import Access
from odradek.admin.resources import SOURCE_NAMES, Kind
from odradek.cli.access import on_cluster
from odradek.cli.arguments import JsonOutput, key_value
from odradek.cli.completion import complete_groups, complete_settings, complete_topics
from odradek.cli.danger import Force, check_internal
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, BadParameter, Context, Group, Option
from odradek.cli.output import print_columns, print_json, print_line, warn
from odradek.config.definition import ConfigSource

if TYPE_CHECKING:
    from odradek.admin.settings import SettingView

app = Group(help="List, describe and alter settings of topics, brokers and groups.")

HIDDEN = "(hidden)"
INDENT = "    "


def complete_names(context: Context, incomplete: str) -> list[Any]:
    kind = getattr(context.params.get("kind"), "value", context.params.get("kind"))
    complete = {"topic": complete_topics, "group": complete_groups}.get(str(kind))
    return complete(context, incomplete) if complete else []


KindArgument = Annotated[Kind, Argument(metavar="topic|broker|group")]
NameArgument = Annotated[str | None, Argument(metavar="[NAME]", complete=complete_names)]


@app.command("list")
@on_cluster
def list_(
    cluster: Access,
    kind: KindArgument,
    name: NameArgument = None,
    all_: Annotated[bool, Option("--all", "-a", help="Defaults too.")] = False,
    as_json: JsonOutput = False,
) -> None:
    """List settings that are not defaults. Without a name, it lists those of all topics, brokers or groups."""
    from odradek.admin.settings import view_settings

    views = [
        view
        for view in view_settings(cluster, kind, name, [])
        if all_ or view.source != SOURCE_NAMES[ConfigSource.DEFAULT_CONFIG]
    ]
    if as_json:
        print_json([asdict(view) for view in views])
        return
    rows = [(view.name, view.key, _shown(view), view.source) for view in views]
    print_columns((kind.value.upper(), "KEY", "VALUE", "SOURCE"), rows)


@app.command()
@on_cluster
def describe(
    cluster: Access,
    kind: KindArgument,
    name: NameArgument = None,
    keys: Annotated[
        list[str] | None,
        Argument(metavar="[KEY]...", complete=complete_settings),
    ] = None,
    as_json: JsonOutput = False,
) -> None:
    """Describe settings. It shows value, source, type and documentation of all settings, or of those named."""
    from odradek.admin.setting_names import guess
    from odradek.admin.settings import known_settings, view_settings

    views = view_settings(cluster, kind, name, keys or [])
    if keys and (missing := set(keys).difference(view.key for view in views)):
        raise CommandError(
            f"a {kind.value} has no setting {min(missing)}{guess(min(missing), [min(missing)], known_settings(kind))}"
        )
    if as_json:
        print_json([asdict(view) for view in views])
        return
    for view in views:
        print_line(f"{view.kind} {view.name}: {view.key} = {_shown(view)}")
        changeable = "read only" if view.read_only else "can be altered"
        print_line(f"{INDENT}from {view.source}, {view.type}, {changeable}")
        for other in view.synonyms[1:]:
            print_line(f"{INDENT}else {other.name} = {other.value} from {other.source}")
        for line in textwrap.wrap(view.documentation or "", width=100):
            print_line(f"{INDENT}{line}")


def _shown(view: "SettingView") -> str:
    if view.sensitive:
        return HIDDEN
    return "" if view.value is None else view.value


@app.command()
@on_cluster
def alter(
    cluster: Access,
    kind: KindArgument,
    name: NameArgument = None,
    set_: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="A new value; repeatable.", complete=complete_settings),
    ] = None,
    delete: Annotated[
        list[str] | None,
        Option(
            "--delete",
            metavar="KEY",
            help="A setting to reset to its default; repeatable.",
            complete=complete_settings,
        ),
    ] = None,
    force: Force = False,
    as_json: JsonOutput = False,
) -> None:
    """Change settings of a topic, a group or a broker. Without a name, those of all brokers are changed."""
    if not set_ and not delete:
        raise BadParameter("nothing to change: give --set or --delete")
    if name is None and kind is not Kind.BROKER:
        raise BadParameter(f"name a {kind.value}", param_hint="NAME")
    if kind is Kind.TOPIC:
        check_internal([name or ""], force)
    from odradek.admin.settings import alter_settings, unknown_to_brokers

    changes = dict(map(key_value, set_ or ()))
    alter_settings(cluster, kind, name, changes, delete or ())
    if as_json:
        print_json(
            {"kind": kind.value, "name": name, "set": changes, "deleted": delete or [], "altered": True}
        )
    else:
        print_line(f"Altered {kind.value} {name}." if name else "Altered all brokers.")
    for key, reason in unknown_to_brokers(changes).items() if kind is Kind.BROKER else ():
        warn(f"the brokers keep {key}, and ignore it: {reason}")
