"""Charts and tables, as they look."""

from tools.bookstore.drawing import bars, columns, cut, gauge, money, table


def test_columns_have_their_heights_in_eighths() -> None:
    assert columns([0, 1, 8, 12, 16], height=2) == ["16 ┤   ▄█", " 0 ┤ ▁███"]


def test_columns_of_nothing() -> None:
    assert columns([0, 0], height=2) == ["0 ┤", "0 ┤"]
    assert columns([], height=1) == ["0 ┤"]


def test_a_small_value_is_seen_beside_a_large_one() -> None:
    assert columns([1, 100_000], height=1) == ["100,000 ┤▁█"]


def test_bars() -> None:
    assert bars([("Middlemarch", 1000), ("Dead Souls", 500), ("none", 0)], 30) == [
        "Middlemarch  1,000  ██████████",
        "Dead Souls     500  █████",
        "none             0",
    ]
    assert bars([], 30) == []


def test_table() -> None:
    assert table(("account", "failures"), [("josef", "12"), ("k", "5")], right=(1,)) == [
        "account  failures",
        "───────  ────────",
        "josef          12",
        "k               5",
    ]


def test_gauge() -> None:
    assert [gauge(done, 4, 4) for done in (0, 1, 4, 5)] == ["░░░░", "█░░░", "████", "████"]
    assert gauge(0, 0, 2) == "██"


def test_money_and_cut() -> None:
    assert [money(cents) for cents in (0, 5, 399, 4_291_259)] == ["0.00", "0.05", "3.99", "42,912.59"]
    assert (cut("bookstore", 9), cut("bookstore", 5)) == ("bookstore", "book…")
