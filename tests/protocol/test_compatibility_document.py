"""docs/COMPATIBILITY.md says what the registry serves, and every API module says what it is."""

import pytest

from odradek.requests.registry import APIS
from odradek.wire.messages.index import SCHEMAS
from tools import compatibility


def test_the_document_is_up_to_date() -> None:
    document = compatibility.DOCUMENT.read_text()
    assert compatibility.up_to_date(document) == document, "run python tools/compatibility.py"


@pytest.mark.parametrize("key", sorted(APIS))
def test_every_api_module_opens_with_its_name_and_number(key: int) -> None:
    first_line = compatibility.docstring(APIS[key].module)
    assert first_line.startswith(f"{SCHEMAS[key].name} ({key}): ")
