"""Which limit applies to a client: of all entities that name its user and its client id, the most specific one.

Kafka's order has eight kinds of entities. A user counts more than a client id, a name more than a default:

    1  user u, client id c        5  default user, default client id
    2  user u, default client id  6  default user
    3  user u                     7  client id c
    4  default user, client id c  8  default client id

Each quota is looked up on its own: a user with a `producer_byte_rate` still has the default `consumer_byte_rate`.

The kind also says with whom the limit is shared: one for users alone (3, 6) is shared by all client ids of a user, one
for client ids alone (7, 8) by all users with that client id, the others by nobody.
"""

from collections.abc import Mapping
from typing import NamedTuple

from odradek.quotas.keys import CLIENT_ID, IP, USER, Entity, Quotas

Sharers = tuple[str | None, str | None]  # the user and the client id, None for all of them


class Limit(NamedTuple):
    value: float
    sharers: Sharers


class Limits:
    """The limits that are set for one quota."""

    def __init__(self, key: str, quotas: Quotas) -> None:
        self._values: Mapping[Entity, float] = {
            entity: values[key] for entity, values in quotas.items() if key in values
        }

    def __bool__(self) -> bool:
        return bool(self._values)

    def find(self, user: str, client_id: str) -> Limit | None:
        """The limit of this client; None if there is none."""
        for entity, sharers in _kinds(user, client_id):
            value = self._values.get(entity)
            if value is not None:
                return Limit(value, sharers)
        return None


def _kinds(user: str, client_id: str) -> tuple[tuple[Entity, Sharers], ...]:
    both, alone, any_user = (user, client_id), (user, None), (None, client_id)
    return (
        (((CLIENT_ID, client_id), (USER, user)), both),
        (((CLIENT_ID, None), (USER, user)), both),
        (((USER, user),), alone),
        (((CLIENT_ID, client_id), (USER, None)), both),
        (((CLIENT_ID, None), (USER, None)), both),
        (((USER, None),), alone),
        (((CLIENT_ID, client_id),), any_user),
        (((CLIENT_ID, None),), any_user),
    )


def limits_of_addresses(key: str, quotas: Quotas) -> dict[str | None, float]:
    """Return the limits by address; that of None is for all others."""
    return {
        entity[0][1]: values[key] for entity, values in quotas.items() if entity[0][0] == IP and key in values
    }
