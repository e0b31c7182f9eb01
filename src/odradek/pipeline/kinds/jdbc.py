"""The common parts of a database's source and sink: options, and how a refusal of rows is told from other failures."""

import re
from typing import Any

from odradek.pipeline.file.definition import JdbcTable

ROW_REFUSED = re.compile(
    r"SQLIntegrityConstraintViolationException|SQLDataException|DataTruncation|SQLState: 2[23]"
)
REFUSAL = re.compile(
    r"(?:SQLIntegrityConstraintViolationException|SQLDataException|DataTruncation): ([^\n]*)"
)


def jdbc_options(target: JdbcTable) -> dict[str, Any]:
    options: dict[str, Any] = {"url": target.url, **target.options}
    if target.driver:
        options["driver"] = target.driver
    return options


def refusal(text: str) -> str:
    """Why a database refused a row."""
    found = REFUSAL.search(text)
    return " ".join((found[1] if found else text.strip().split("\n")[0]).split()).rstrip(". ")
