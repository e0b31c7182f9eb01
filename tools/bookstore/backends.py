"""The three backends of the store. Each does what it is asked, enters it in the ledger and tells it as an event.

Events are keyed, by customer or by book, so that what belongs together stays in order in one partition.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from .catalog import Book
from .ledger import Ledger, Return

SECURITY, ORDERS, RETURNS, BOOKS = (
    "bookstore-security",
    "bookstore-orders",
    "bookstore-returns",
    "bookstore-books",
)
TOPICS = (SECURITY, BOOKS, ORDERS, RETURNS)


@dataclass(frozen=True)
class Event:
    topic: str
    key: str
    value: bytes


@dataclass(frozen=True)
class Order:
    id: int
    customer: str
    book: Book
    copies: int
    at_ms: int

    @property
    def cents(self) -> int:
        return self.copies * self.book.price_cents


class Desk:
    """The part that all backends share: one clock, one ledger, one way out."""

    def __init__(self, ledger: Ledger, emit: Callable[[Event], None]) -> None:
        self.now_ms = 0
        self.ledger, self._emit = ledger, emit

    def tell(self, topic: str, key: str, action: str, **facts: Any) -> None:
        at = datetime.fromtimestamp(self.now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        content = {"event": action, **facts, "at": f"{at}.{self.now_ms % 1000:03}Z"}
        self.tell_bytes(topic, key, action, json.dumps(content, separators=(",", ":")).encode())

    def tell_bytes(self, topic: str, key: str, action: str, value: bytes) -> None:
        self.ledger.enter_record(topic, action)
        self._emit(Event(topic, key, value))


class Security:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def login(self, customer: str, address: str, ok: bool) -> None:
        self._desk.ledger.enter_login(self._desk.now_ms, customer, ok)
        self._desk.tell(SECURITY, customer, "login", customer=customer, address=address, ok=ok)

    def logout(self, customer: str) -> None:
        self._desk.tell(SECURITY, customer, "logout", customer=customer)


class BookInformation:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def list_books(self, customer: str, shelf: str) -> None:
        self._desk.tell(BOOKS, shelf, "list", customer=customer, shelf=shelf)

    def show_details(self, customer: str, book: Book) -> None:
        self._desk.ledger.enter_look(book.id)
        self._desk.tell(BOOKS, book.id, "details", customer=customer, shelf=book.shelf, book=book.id)


class OrderProcessing:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._last_id = 1000

    def buy(self, customer: str, book: Book, copies: int) -> Order:
        self._last_id += 1
        order = Order(self._last_id, customer, book, copies, self._desk.now_ms)
        self._desk.ledger.enter_sale(order.at_ms, order.cents)
        self._tell_order(order, order.cents)
        return order

    def status(self, order: Order) -> None:
        self._desk.tell(ORDERS, order.customer, "status", order_id=order.id, customer=order.customer)

    def give_back(self, order: Order, reason: str) -> None:
        kept_ms = self._desk.now_ms - order.at_ms
        entry = Return(order.id, order.book.id, order.cents, reason, kept_ms // 60_000)
        self._desk.ledger.enter_return(entry)
        facts = {"order_id": order.id, "customer": order.customer, "reason": reason}
        self._desk.tell(RETURNS, order.customer, "return", **facts)

    def _tell_order(self, order: Order, cents: int) -> None:
        facts = {"order_id": order.id, "book": order.book.id, "copies": order.copies}
        facts |= {"amount": cents / 100, "customer": order.customer}
        self._desk.tell(ORDERS, order.customer, "buy", **facts)

    # An old till does this now and then. None of it is a sale or a return, and none of it may get through.

    def lose_half_an_order(self, till: str) -> None:
        self._desk.ledger.enter_rejected(ORDERS, till, "decode")
        self._desk.tell_bytes(ORDERS, till, "buy", b'{"event":"buy","order_id":10')

    def sell_for_less_than_nothing(self, till: str, book: Book) -> None:
        self._last_id += 1
        self._desk.ledger.enter_rejected(ORDERS, till, "transform")
        self._tell_order(Order(self._last_id, till, book, 1, self._desk.now_ms), -book.price_cents)

    def return_nothing(self, till: str) -> None:
        self._desk.ledger.enter_rejected(RETURNS, till, "decode")
        self._desk.tell(RETURNS, till, "return", customer=till, reason="unknown")
