"""AlterClientQuotas: what is set, what is refused, and what a change costs."""

import math
from random import Random

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller.changes import changes
from odradek.controller.controller import Controller
from odradek.controller.parts import Part
from odradek.errors import ErrorCode
from odradek.metadata.records import ClientQuotaRecord, QuotaEntity
from odradek.model import Caller
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityDataInRequest,
    EntryDataInRequest,
    OpData,
)
from tests.controller.controller_cluster import apply, cluster

ADA = (("user", "ada"),)


def entry(entity, **ops):
    named = [EntityDataInRequest(kind, name) for kind, name in entity]
    return EntryDataInRequest(named, [OpData(key, value or 0, value is None) for key, value in ops.items()])


def decide(image, *entries, validate_only=False):
    request = AlterClientQuotasRequest(list(entries), validate_only)
    records, response = Controller(1, BrokerConfig(), Random(1)).decide(image, Part(request), 1, Caller())
    return (
        apply(image, records),
        [(item.error_code, item.error_message) for item in response.entries],
        records,
    )


OK = (ErrorCode.NONE, None)


def test_quotas_are_set_changed_and_removed():
    both = (("user", "ada"), ("client-id", None))
    image, results, _ = decide(
        cluster(),
        entry(ADA, producer_byte_rate=1000.0, request_percentage=12.5),
        entry(both, consumer_byte_rate=5.0),
        entry((("ip", "10.0.0.1"),), connection_creation_rate=3.0),
        entry((("ip", None),), connection_creation_rate=4.0),
    )
    assert results == [OK] * 4
    assert image.quotas == {
        ADA: {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
        (("client-id", None), ("user", "ada")): {"consumer_byte_rate": 5.0},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 3.0},
        (("ip", None),): {"connection_creation_rate": 4.0},
    }
    image, _, records = decide(image, entry(ADA, producer_byte_rate=2000.0, request_percentage=None))
    assert image.quotas[ADA] == {"producer_byte_rate": 2000.0} and len(records) == 2
    image, _, _ = decide(image, entry(ADA, producer_byte_rate=None))
    assert ADA not in image.quotas


def test_what_changes_nothing_writes_nothing():
    image, _, _ = decide(cluster(), entry(ADA, producer_byte_rate=1000.0))
    _, results, records = decide(image, entry(ADA, producer_byte_rate=1000.0, consumer_byte_rate=None))
    assert results == [OK] and records == []
    _, results, records = decide(image, entry(ADA, producer_byte_rate=1.0), validate_only=True)
    assert results == [OK] and records == []


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (entry((), producer_byte_rate=1.0), "Invalid empty client quota entity"),
        (entry((("topic", "t"),), producer_byte_rate=1.0), "Unhandled client quota entity type: topic"),
        (entry((("user", ""),), producer_byte_rate=1.0), "Empty user not supported"),
        (
            entry((("ip", "nowhere"),), connection_creation_rate=1.0),
            "nowhere is not a valid IP or resolvable host.",
        ),
        (entry(ADA, producer_byte_rate=0.0), "Quota producer_byte_rate must be greater than 0"),
        (entry(ADA, request_percentage=-1.0), "Quota request_percentage must be greater than 0"),
        (entry(ADA, request_percentage=math.nan), "Quota request_percentage must be greater than 0"),
        (entry(ADA, producer_byte_rate=1.5), "producer_byte_rate cannot be a fractional value."),
        (
            entry(ADA, producer_byte_rate=1e19),
            "Proposed value for producer_byte_rate is too large for a LONG.",
        ),
        (
            entry(ADA, producer_byte_rate=math.inf),
            "Proposed value for producer_byte_rate is too large for a LONG.",
        ),
        (
            entry((("ip", None),), connection_creation_rate=3e9),
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        (entry(ADA, connection_creation_rate=1.0), "Invalid configuration key connection_creation_rate"),
        (entry((("ip", None),), producer_byte_rate=1.0), "Invalid configuration key producer_byte_rate"),
        (entry(ADA, nonsense=1.0), "Invalid configuration key nonsense"),
        (
            EntryDataInRequest([EntityDataInRequest("user", "ada")], [OpData("a", 1.0), OpData("a", 1.0)]),
            "Duplicate quota key a not updating quota for this entity ClientQuotaEntity(entries={user=ada})",
        ),
    ],
)
def test_an_entity_is_altered_as_a_whole_or_not_at_all(bad, message):
    bad.ops.insert(0, OpData("controller_mutation_rate", 7.0))
    if bad.entity and bad.entity[0].entity_type == "ip":
        bad.ops.pop(0)
    image, results, records = decide(cluster(), bad, entry((("user", "bob"),), producer_byte_rate=1.0))
    assert results == [(ErrorCode.INVALID_REQUEST, message), OK]
    assert set(image.quotas) == {(("user", "bob"),)} and len(records) == 1


def test_an_address_is_not_narrowed():
    _, (result,), _ = decide(cluster(), entry((("ip", None), ("user", "ada")), connection_creation_rate=1.0))
    assert result[0] == ErrorCode.INVALID_REQUEST and "combination" in result[1]


def test_an_entity_that_is_named_twice_is_refused():
    _, results, records = decide(
        cluster(), entry(ADA, producer_byte_rate=1.0), entry(ADA, producer_byte_rate=2.0)
    )
    assert [code for code, _ in results] == [ErrorCode.INVALID_REQUEST]
    assert [record.value for record in records] == [1.0]


def test_changes_are_described_for_the_audit_log():
    image, _, _ = decide(cluster(), entry(ADA, producer_byte_rate=1000.0))
    told = [
        (change.text, change.is_audited)
        for change in changes(
            image,
            [
                ClientQuotaRecord([QuotaEntity("user", "ada")], "producer_byte_rate", 5e6),
                ClientQuotaRecord([QuotaEntity("user", "ada")], "producer_byte_rate", remove=True),
                ClientQuotaRecord(
                    [QuotaEntity("user", None), QuotaEntity("client-id", "x\ny")], "request_percentage", 12.5
                ),
            ],
        )
    ]
    assert told == [
        ('set the quota producer_byte_rate of user "ada" from 1000 to 5e+06', True),
        ('removed the quota producer_byte_rate (1000) of user "ada"', True),
        (
            'set the quota request_percentage of the default user, client-id "x\\ny" from no limit to 12.5',
            True,
        ),
    ]
