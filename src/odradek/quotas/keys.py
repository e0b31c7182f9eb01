"""The quotas that there are, by Kafka's names, and the entities that they may be set for."""

from collections.abc import Mapping

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)

# A user, a client id, an address, or a user and a client id: (type, name) sorted, name None for the default.
Entity = tuple[tuple[str, str | None], ...]
Quotas = Mapping[Entity, Mapping[str, float]]

MAX_NAME_LENGTH = 1024  # of an entity; of a longer client id no more than that counts

MAX_INT, MAX_LONG = 2**31 - 1, 2**63 - 1
# The largest whole number that each may be; None for those that need not be whole.
OF_CLIENTS: Mapping[str, int | None] = {
    CONSUMER_BYTE_RATE: MAX_LONG,
    CONTROLLER_MUTATION_RATE: None,
    PRODUCER_BYTE_RATE: MAX_LONG,
    REQUEST_PERCENTAGE: None,
}
OF_ADDRESSES: Mapping[str, int | None] = {CONNECTION_CREATION_RATE: MAX_INT}
