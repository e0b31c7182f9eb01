"""The words of the log about a broker that has left: the first count always says what it counts."""

import pytest

from odradek.controller.departures import Departed


@pytest.mark.parametrize(
    ("moved", "refusing", "leaderless", "words"),
    [
        (0, [], [], "no partition changed its leader"),
        (1, [], [], "1 partition changed leaders"),
        (0, [], ["t-0"], "1 partition without a leader (t-0)"),
        (0, ["t-0", "t-1"], ["u-0"], "2 partitions under min ISR (t-0, t-1), 1 without a leader (u-0)"),
        (1000, ["t-0"], [], "1,000 partitions changed leaders, 1 under min ISR (t-0)"),
    ],
)
def test_the_words(moved: int, refusing: list[str], leaderless: list[str], words: str) -> None:
    assert str(Departed(2, "", False, moved, refusing, leaderless)) == f"broker 2 left: {words}"
