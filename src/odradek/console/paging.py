"""Long lists come in pages that are numbered from 1."""

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def cut(items: Sequence[Item], page: int, size: int) -> tuple[list[Item], int, int]:
    """The items of a page, its number and the number of pages; of a page that does not exist, the nearest one."""
    pages = max(1, -(-len(items) // size))
    page = min(max(1, page), pages)
    return list(items[(page - 1) * size : page * size]), page, pages
