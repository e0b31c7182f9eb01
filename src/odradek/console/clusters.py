"""The clusters of a console, each with its poller, and what all requests share."""

import time
from dataclasses import replace

from odradek.admin.access import Access
from odradek.admin.capabilities import APIS
from odradek.console.audit import Audit
from odradek.console.messages.schemas import Schemas
from odradek.console.messages.searches import Downloads, Searches
from odradek.console.picture.album import Album
from odradek.console.picture.exercise import Exercises
from odradek.console.sessions import Sessions
from odradek.console.settings import ConsoleSettings
from odradek.console.stream import Hub
from odradek.console.users import read_users
from odradek.console.watch.lag import LagHistories
from odradek.console.watch.ledger import LedgerWatch
from odradek.console.watch.looked import Looked
from odradek.console.watch.poller import KEEP_S, Poller
from odradek.console.watch.recent import Recent
from odradek.console.watch.seen import Seen
from odradek.ledger.counts import SinkCounts

IMPATIENT = {"request.timeout.ms": "2000", "socket.connection.setup.timeout.ms": "1500"}
FIRST_LOOK_S = 0.3  # how long the first page waits for the first look; then it says so, and refreshes


class WatchedCluster:
    def __init__(self, name: str, access: Access, hub: Hub) -> None:
        self.name, self.access = name, access
        watched = replace(access, kept={}, keep_s=KEEP_S, client_id="odradek-console")
        # Used for pictures, which all who look share: a broker that does not respond must not hold up the rest.
        self.glance = replace(watched, given=access.given | IMPATIENT, kept={})
        self.album, self.lags, self.ledger, self.recent = Album(), LagHistories(), LedgerWatch(), Recent()
        self.counts: Looked[list[SinkCounts]] = Looked()
        self.poller = Poller(watched, lambda parts: hub.publish(name, parts), lambda: hub.count)

    @property
    def seen(self) -> Seen:
        """The state that was seen last; whoever asks counts as somebody who looks."""
        self.poller.used()
        if self.poller.seen.topology is None and self.poller.seen.problem is None:
            self.poller.wait_for_first_look(FIRST_LOOK_S)
        return self.poller.seen

    def serves(self, api: str) -> bool:
        return APIS[api] in self.poller.seen.apis


class Console:
    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self.hub = Hub()
        self.audit = Audit(settings.audit_file)
        users = None if settings.users_file is None else read_users(settings.users_file)
        self.sessions = Sessions(users, settings.read_only)
        self.clusters = {
            name: WatchedCluster(name, access, self.hub) for name, access in settings.clusters.items()
        }
        self.searches, self.downloads = Searches(), Downloads()
        self.exercises = Exercises()
        self.schemas = Schemas(settings.schema_registry)
        self.started_s = time.monotonic()

    def start(self) -> None:
        self.hub.open()
        for cluster in self.clusters.values():
            cluster.poller.start()

    def stop(self) -> None:
        self.hub.close()
        self.searches.stop_all()
        self.exercises.stop_all()
        for cluster in self.clusters.values():
            cluster.poller.stop()
