"""The connections to both clusters, each by the settings of the file."""

from dataclasses import replace

from odradek.admin.access import Access
from odradek.client.cluster import Cluster
from odradek.client.settings import ClientSettings
from odradek.mirror.copying import Clients
from odradek.mirror.file import ClusterSettings, MirrorSettings

CLIENT_ID = "odradek-mirror"
GRACE_S = 10.0  # that a response may take longer than what it waits for


def cluster_of(settings: ClusterSettings, *, waits_s: float = 0.0) -> Cluster:
    """A client of its own. `waits_s`: how long its requests may wait at a broker."""
    client = settings.properties.client
    if client.client_id == ClientSettings(bootstrap=()).client_id:
        client = replace(client, client_id=CLIENT_ID)
    return Cluster(
        replace(client, request_timeout_s=max(client.request_timeout_s, waits_s + GRACE_S if waits_s else 0))
    )


def clients_of(settings: MirrorSettings) -> Clients:
    """Return the clients that copy one partition."""
    return Clients(cluster_of(settings.source), cluster_of(settings.source), cluster_of(settings.target))


def access_to(settings: ClusterSettings) -> Access:
    """Return access for administration."""
    given = dict(settings.given)
    place = f"{settings.name} in the mirror's file"
    return Access(given["bootstrap.servers"], given, client_id=CLIENT_ID, place=place)
