"""docs/COMPATIBILITY.md says what the registry serves, and every API module says what it is."""

import pytest

from odradek.requests.registry import SERVED, ListenerKind
from odradek.wire.messages.index import SCHEMAS
from tools import compatibility


def test_the_document_is_up_to_date() -> None:
    document = compatibility.DOCUMENT.read_text()
    assert compatibility.up_to_date(document) == document, "run python tools/compatibility.py"


@pytest.mark.parametrize(
    ("kind", "key"), [(kind, key) for kind, apis in SERVED.items() for key in sorted(apis)]
)
def test_every_api_module_opens_with_its_name_and_number(kind: ListenerKind, key: int) -> None:
    first_line = compatibility.docstring(SERVED[kind][key].module)
    assert first_line.startswith(f"{SCHEMAS[key].name} ({key}): ")
