"""The books: e-books, which can be returned within half an hour."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Book:
    id: str
    title: str
    shelf: str
    price_cents: int
    weight: int  # how often it is looked at, beside the others of its shelf


BOOKS = (
    Book("b01", "The Cares of a Family Man", "short", 399, 9),
    Book("b02", "The Overcoat", "short", 449, 5),
    Book("b03", "Bartleby, the Scrivener", "short", 499, 6),
    Book("b04", "The Lady with the Dog", "short", 549, 3),
    Book("b05", "The Trial", "novels", 1199, 7),
    Book("b06", "Middlemarch", "novels", 1499, 4),
    Book("b07", "Dead Souls", "novels", 1249, 3),
    Book("b08", "Moby-Dick", "novels", 1399, 5),
    Book("b09", "Elements of Geometry", "science", 2199, 2),
    Book("b10", "On the Origin of Species", "science", 1899, 4),
    Book("b11", "Passages from the Life of a Philosopher", "science", 1699, 3),
    Book("b12", "An Investigation of the Laws of Thought", "science", 2049, 2),
)
BY_ID = {book.id: book for book in BOOKS}
SHELVES = tuple(dict.fromkeys(book.shelf for book in BOOKS))


def on_shelf(shelf: str) -> tuple[Book, ...]:
    return tuple(book for book in BOOKS if book.shelf == shelf)
