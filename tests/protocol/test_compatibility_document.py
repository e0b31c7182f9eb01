"""docs/COMPATIBILITY.md says what the registry serves, and every API module says what it is."""

import re

import pytest

from odradek.apis.row import ListenerKind
from odradek.apis.table import SERVED
from odradek.errors import ErrorCode
from odradek.wire.messages.index import SCHEMAS
from tools import compatibility


def document() -> str:
    return compatibility.DOCUMENT.read_text()


def test_the_document_is_up_to_date() -> None:
    assert compatibility.up_to_date(document()) == document(), "run python tools/compatibility.py"


def test_nothing_is_said_to_be_missing_that_is_described_further_down() -> None:
    _, missing, differences = re.split(
        "^## (?:Not there yet|Where it differs)$", document(), flags=re.MULTILINE
    )
    names = re.findall(r"^- \*\*(.+?)\*\*", missing, re.MULTILINE)
    headings = re.findall("^### (.+)$", differences, re.MULTILINE)
    assert names and headings
    assert not {name.strip(".") for name in names} & set(headings)


def test_what_kafka_answers_about_a_topic_that_is_being_created() -> None:
    """Kafka 4 has no topic yet when it responds (AutoTopicCreationManager), so it has no leaders to wait for either."""
    (sentence,) = re.findall(r"Kafka responds\s+(\w+) first", document())
    assert sentence == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
    assert "LEADER_NOT_AVAILABLE" not in document() + compatibility.docstring("metadata")


@pytest.mark.parametrize(
    ("kind", "key"), [(kind, key) for kind, apis in SERVED.items() for key in sorted(apis)]
)
def test_every_api_module_opens_with_its_name_and_number(kind: ListenerKind, key: int) -> None:
    first_line = compatibility.docstring(SERVED[kind][key].modules[kind])
    assert first_line.startswith(f"{SCHEMAS[key].name} ({key}): ")
