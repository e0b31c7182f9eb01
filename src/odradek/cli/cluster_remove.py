"""`odradek cluster remove-broker`: empty a broker, so that it can be stopped for good (`admin.removal`)."""

from dataclasses import asdict
from typing import Annotated

from odradek.admin.access import Access
from odradek.cli.arguments import JsonOutput
from odradek.cli.cluster_grow import DEFAULT_TIMEOUT_S
from odradek.cli.danger import Yes, confirm
from odradek.cli.framework import Argument, Option
from odradek.cli.output import print_json, print_line
from odradek.cli.topic_reassign import Throttle


def remove_broker(
    cluster: Access,
    broker: Annotated[int, Argument(metavar="ID", help="The broker's node.id.")],
    throttle: Throttle = None,
    no_wait: Annotated[
        bool, Option("--no-wait", help="Do not wait until the broker has stopped, and do not unregister it.")
    ] = False,
    timeout: Annotated[
        int, Option("--timeout", metavar="SECONDS", min=1, help="How long to wait until it has stopped.")
    ] = DEFAULT_TIMEOUT_S,
    yes: Yes = False,
    as_json: JsonOutput = False,
) -> None:
    """Move everything away from a broker, take its vote, and unregister it once it has stopped.

    It says what the cluster may lose afterwards, and asks first if that is less than before, unless --yes is given.
    It refuses if the other brokers are too few for the replicas that topics have: lower their replication first
    ('odradek topic reassign --replication-factor'). The broker goes on serving while it is emptied. Then stop it: the
    command waits for that, and unregisters it. A broker that is dead already is removed in the same way. Name other
    brokers with -b than the one that leaves.
    """
    from odradek.admin.removal import carry_out_removal
    from odradek.cli.watching import TerminalWatcher

    removal = carry_out_removal(
        cluster,
        broker,
        throttle,
        None if no_wait else timeout,
        lambda question: confirm(question, yes),
        TerminalWatcher(),
    )
    if as_json:
        print_json(asdict(removal))
    elif removal.is_unregistered:
        print_line(f"Removed broker {broker}.")
    else:
        print_line(f"Broker {broker} is empty: stop it, and run this command again to unregister it.")
