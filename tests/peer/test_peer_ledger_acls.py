"""The rights that our documentation names suffice to write exactly once to Apache Kafka, too, and each is needed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ledger import test_ledger_acls
from tests.ledger.test_ledger_acls import admin, each_missing, sink  # noqa: F401
from tests.peer.test_peer_acls import SETTINGS
from tools.peer.kafka import KafkaPeer


@pytest.fixture(scope="module")
def broker(jars: Path) -> Iterator[KafkaPeer]:
    with KafkaPeer(**{name.replace(".", "_"): value for name, value in SETTINGS.items()}) as peer:
        yield peer


def test_the_rights_that_are_documented_suffice(broker, admin, sink):  # noqa: F811
    test_ledger_acls.test_the_rights_that_are_documented_suffice(broker, admin, sink)


@each_missing
def test_a_right_that_is_missing_is_named(broker, admin, sink, missing, wanted):  # noqa: F811
    test_ledger_acls.test_a_right_that_is_missing_is_named(broker, admin, sink, missing, wanted)
