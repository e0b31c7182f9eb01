"""Reckoning with offsets: checkpoints as the JVM connector writes them, shares of a trigger, pieces of a range."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.model import TopicPartition
from odradek.spark.offsets import (
    OffsetRange,
    begun_in,
    from_checkpoint,
    parse_offsets,
    parse_partitions,
    share_out,
    split_ranges,
    to_checkpoint,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_a_checkpoint_reads_as_the_jvm_connector_writes_it():
    assert from_checkpoint(json.loads('{"a":{"1":5,"0":23},"b":{"0":7}}')) == {A0: 23, A1: 5, B0: 7}
    assert json.dumps(to_checkpoint({B0: 7, A1: 5, A0: 23})) == '{"a": {"0": 23, "1": 5}, "b": {"0": 7}}'


def test_where_a_query_begins_is_marked_and_the_mark_is_no_partition():
    stored = to_checkpoint({A0: 9, A1: 7, B0: 3}, {B0: 0, A1: 7, A0: 5})
    assert stored == {"(from a:0=5,1=7 b:0=0)": {}, "a": {"0": 9, "1": 7}, "b": {"0": 3}}
    assert from_checkpoint(stored) == {A0: 9, A1: 7, B0: 3}
    assert begun_in(stored) == {A0: 5, A1: 7, B0: 0}
    assert begun_in(to_checkpoint({A0: 9})) is None


def test_even_a_start_without_partitions_is_not_nothing():
    assert begun_in(to_checkpoint({}, {})) == {}
    assert to_checkpoint({}, {})


@pytest.mark.parametrize("text", ["", "latest", "[1]", '{"a":1}', '{"a":{"x":1}}', '{"a":{"0":1.5}}', "{"])
def test_offsets_that_are_not_offsets_are_refused_with_an_example(text):
    with pytest.raises(ValueError, match="expected AN EXAMPLE; got"):
        parse_offsets(text, "AN EXAMPLE")


@pytest.mark.parametrize("text", ["", "a", '{"a":0}', '{"a":["x"]}', '{"a":[true]}'])
def test_partitions_that_are_not_partitions_are_refused_with_an_example(text):
    with pytest.raises(ValueError, match="expected for example"):
        parse_partitions(text)


def test_partitions_are_sorted():
    assert parse_partitions('{"b":[0],"a":[1,0]}') == [A0, A1, B0]


def test_a_limit_is_shared_in_proportion_and_starves_nobody():
    shared = share_out(100, {A0: 0, A1: 0, B0: 50}, {A0: 9_990, A1: 10, B0: 50})
    assert shared == {A0: 99, A1: 1, B0: 50}


amounts = st.dictionaries(
    st.sampled_from([A0, A1, B0]), st.tuples(st.integers(0, 10**6), st.integers(0, 10**6))
)


@given(amounts, st.integers(1, 10**6))
def test_sharing_never_passes_the_end_and_always_moves(ends, limit):
    start = {key: first for key, (first, _) in ends.items()}
    end = {key: first + size for key, (first, size) in ends.items()}
    shared = share_out(limit, start, end)
    assert shared.keys() == end.keys()
    for key in end:
        assert start[key] <= shared[key] <= end[key]
        assert shared[key] > start[key] or start[key] == end[key]
    assert sum(shared[key] - start[key] for key in end) <= limit + len(end)


ranges = st.lists(st.integers(0, 5_000), max_size=6).map(
    lambda sizes: [OffsetRange(TopicPartition("t", i), 10, 10 + size) for i, size in enumerate(sizes)]
)


@given(ranges, st.none() | st.integers(1, 40), st.none() | st.integers(1, 3_000))
def test_pieces_cover_every_offset_once(whole, min_partitions, max_records):
    pieces = split_ranges(whole, min_partitions, max_records)
    assert all(piece.size > 0 for piece in pieces)
    if max_records is not None:
        assert all(piece.size <= max_records for piece in pieces)
    for one in whole:
        own = [piece for piece in pieces if piece.partition == one.partition]
        bounds = [one.start, *(piece.end for piece in own)]
        assert [piece.start for piece in own] == bounds[:-1]
        assert bounds[-1] == one.end


def test_large_ranges_are_cut_and_small_ones_left():
    pieces = split_ranges([OffsetRange(A0, 0, 900), OffsetRange(A1, 0, 10)], 4, None)
    assert [(piece.partition, piece.start, piece.end) for piece in pieces] == [
        (A0, 0, 300),
        (A0, 300, 600),
        (A0, 600, 900),
        (A1, 0, 10),
    ]
