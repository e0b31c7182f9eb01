"""The people in the store. Each of them is a generator: it acts, and yields the seconds that it waits then."""

from collections.abc import Iterator
from random import Random

from .backends import BookInformation, Order, OrderProcessing, Security
from .catalog import BOOKS, SHELVES, Book, on_shelf

Behaviour = Iterator[float]

NAMES = (
    "franz",
    "milena",
    "max",
    "felice",
    "ottla",
    "grete",
    "josef",
    "leni",
    "karl",
    "frieda",
    "julie",
    "robert",
)
REASONS = ("wrong book", "bought twice", "not as described", "read it already")
LONGEST_KEPT_S = 25 * 60


class Chance:
    """Draws made of `random()` alone, whose sequence Python promises to keep from version to version."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def happens(self, probability: float) -> bool:
        return self._random.random() < probability

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self._random.random()

    def below(self, end: int) -> int:
        return int(self._random.random() * end)

    def address(self) -> str:
        return f"10.{self.below(200)}.{self.below(250)}.{1 + self.below(250)}"

    def book_of(self, books: tuple[Book, ...]) -> Book:
        ticket = self.below(sum(book.weight for book in books))
        for book in books:
            ticket -= book.weight
            if ticket < 0:
                return book
        raise AssertionError("a ticket is below the sum of the weights")


class Store:
    """The backends, as a customer finds them."""

    def __init__(self, security: Security, books: BookInformation, orders: OrderProcessing) -> None:
        self.security, self.books, self.orders = security, books, orders


def visit(store: Store, customer: str, chance: Chance) -> Behaviour:
    """Log in, look around, perhaps buy, ask where the order is, log out; perhaps come back to return it."""
    address = chance.address()
    while chance.happens(0.1):  # a slip of the finger
        store.security.login(customer, address, ok=False)
        yield chance.between(25, 40)  # so that it is no suspicious pace
    store.security.login(customer, address, ok=True)
    yield chance.between(1, 10)
    orders: list[Order] = []
    for _ in range(1 + chance.below(3)):
        yield from browse(store, customer, chance, orders)
    for order in orders:
        store.orders.status(order)
        yield chance.between(2, 20)
    store.security.logout(customer)
    for order in orders:
        if chance.happens(0.12):
            yield from give_back(store, order, address, chance)


def browse(store: Store, customer: str, chance: Chance, orders: list[Order]) -> Behaviour:
    shelf = SHELVES[chance.below(len(SHELVES))]
    store.books.list_books(customer, shelf)
    yield chance.between(3, 30)
    for _ in range(1 + chance.below(3)):
        book = chance.book_of(on_shelf(shelf))
        store.books.show_details(customer, book)
        yield chance.between(5, 60)
        if chance.happens(0.3):
            orders.append(store.orders.buy(customer, book, 1 + chance.below(2)))
            yield chance.between(2, 15)


def give_back(store: Store, order: Order, address: str, chance: Chance) -> Behaviour:
    yield chance.between(30, LONGEST_KEPT_S / 4)
    store.security.login(order.customer, address, ok=True)
    yield chance.between(2, 10)
    store.orders.give_back(order, REASONS[chance.below(len(REASONS))])
    yield chance.between(1, 5)
    store.security.logout(order.customer)


def guess_passwords(store: Store, victim: str, chance: Chance) -> Behaviour:
    """Somebody tries one password after another; some get in."""
    address = f"203.0.113.{1 + chance.below(250)}"
    for _ in range(8 + chance.below(30)):
        store.security.login(victim, address, ok=False)
        yield chance.between(0.5, 4)
    if chance.happens(0.4):
        store.security.login(victim, address, ok=True)


def old_till(store: Store, chance: Chance) -> Behaviour:
    """A till that should have been replaced: what it sends is no order, or no return."""
    yield chance.between(60, 600)
    store.orders.lose_half_an_order("till-7")
    yield chance.between(60, 900)
    store.orders.sell_for_less_than_nothing("till-7", BOOKS[chance.below(len(BOOKS))])
    yield chance.between(60, 900)
    store.orders.return_nothing("till-7")
