"""kafka-dump-log.sh: what is in segments and their indexes.

The decoders of internal topics and of the metadata log are not here, and neither are producer snapshots and
transaction indexes: they are refused by their names.
"""

import struct
import sys
from collections.abc import Sequence
from pathlib import Path

from odradek.errors import KafkaError
from odradek.records.batch import DELETE_HORIZON, LOG_APPEND_TIME
from odradek.records.compression import Codec
from odradek.records.control import ControlType, decode_control_key, decode_marker
from odradek.records.record import Record, decode_batch
from odradek.records.walk import Batch, whole_batches
from odradek.scripts.options import UNSUPPORTED, Exit, Flag, Given, Parser
from odradek.scripts.running import print_line

INDEX_ENTRY, TIME_ENTRY = struct.Struct(">ii"), struct.Struct(">qi")
LOG_SUFFIXES = (".log", ".checkpoint")
NO_TIMESTAMP = -1
PARSER = Parser(
    "This tool helps to parse a log file and dump its contents to the console, useful for debugging a seemingly "
    "corrupt log segment.",
    [
        Flag("files", "REQUIRED: The comma separated list of data and index log files.", "file1, file2, ..."),
        Flag("print-data-log", "If set, printing the messages content when dumping data logs."),
        Flag("deep-iteration", "If set, uses deep instead of shallow iteration."),
        Flag("skip-record-metadata", "Whether to skip printing metadata for each record."),
        Flag("index-sanity-check", "If set, just checks the index sanity without printing its content."),
        Flag("verify-index-only", "If set, just verify the index log without printing its content."),
        Flag("max-bytes", "Limit the amount of total batches read in bytes.", "size", int, 2**31 - 1),
        Flag("max-message-size", "Of no effect here.", "size", int, 5 * 1024 * 1024),
        *(
            Flag(name, "A decoder that Odradek's scripts do not have.", is_unsupported=True)
            for name in (
                "cluster-metadata-decoder",
                "offsets-decoder",
                "remote-log-metadata-decoder",
                "share-group-state-decoder",
                "transaction-log-decoder",
            )
        ),
        *(
            Flag(name, "A Java class.", "String", is_optional=True, is_unsupported=True)
            for name in ("key-decoder-class", "value-decoder-class")
        ),
    ],
)


def main(arguments: Sequence[str]) -> int:
    given = PARSER.parse(arguments)
    PARSER.require(given, "files")
    for name in (given.text("files") or "").split(","):
        file = Path(name.strip())
        print_line(f"Dumping {file}")
        try:
            dump(file, given)
        except OSError as error:
            raise Exit(1, f"{file}: {error.strerror}") from None
    return 0


def dump(file: Path, given: Given) -> None:
    if file.suffix in LOG_SUFFIXES:
        dump_segment(file, given)
    elif file.suffix == ".index":
        dump_index(file, given)
    elif file.suffix == ".timeindex":
        dump_time_index(file, given)
    elif file.suffix in (".snapshot", ".txnindex"):
        raise Exit(1, f"{file}: {file.suffix} files are {UNSUPPORTED}")
    else:
        sys.stderr.write(f"Ignoring unknown file {file}\n")


def base_offset(file: Path) -> int:
    number = file.name.partition(".")[0].partition("-")[0]
    if not number.isdecimal():
        raise Exit(1, f"{file} has no offset in its name")
    return int(number)


# Segments


def dump_segment(file: Path, given: Given) -> None:
    if file.suffix == ".log":
        print_line(f"Log starting offset: {base_offset(file)}")
    else:
        offset, _, epoch = file.stem.partition("-")
        print_line(f"Snapshot end offset: {int(offset)}, epoch: {int(epoch or 0)}")
    most = given.number("max-bytes") or 0
    with open(file, "rb") as opened:
        data = memoryview(opened.read(most))
    is_deep = given.has("deep-iteration") or given.has("print-data-log")
    position, last, gaps = 0, None, []
    for batch in whole_batches(data):
        print_line(batch_line(batch, position))
        for record in records_in(batch) if is_deep else ():
            if last is not None and record.offset != last + 1:
                gaps.append((last, record.offset))
            last = record.offset
            print_line(record_line(batch, record, given))
        position += len(batch.data)
    if position < len(data) and len(data) < most:
        print_line(f"Found {len(data) - position} invalid bytes at the end of {file.name}")
    if gaps:
        sys.stderr.write(f"Non-consecutive offsets in {file.absolute()}\n")
        for first, second in gaps:
            sys.stderr.write(f"  {first} is followed by {second}\n")


def records_in(batch: Batch) -> list[Record]:
    try:
        return decode_batch(batch.data)
    except KafkaError as error:
        raise Exit(1, f"the batch at offset {batch.header.base_offset} cannot be read: {error}") from None


def batch_line(batch: Batch, position: int) -> str:
    header = batch.header
    has_horizon = bool(header.attributes & DELETE_HORIZON)
    horizon = f"OptionalLong[{header.base_timestamp}]" if has_horizon else "OptionalLong.empty"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {last_sequence(batch)} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.leader_epoch} isTransactional: {_java(header.is_transactional)} "
        f"isControl: {_java(header.is_control)} deleteHorizonMs: {horizon} position: {position} "
        f"{time_type(batch)}: {header.max_timestamp} size: {header.size} magic: {header.magic} "
        f"compresscodec: {Codec(header.codec).name.lower()} crc: {header.crc} isvalid: {_java(batch.has_valid_crc)}"
    )


def last_sequence(batch: Batch) -> int:
    return -1 if batch.header.base_sequence < 0 else batch.header.last_sequence


def time_type(batch: Batch) -> str:
    return "LogAppendTime" if batch.header.attributes & LOG_APPEND_TIME else "CreateTime"


def record_line(batch: Batch, record: Record, given: Given) -> str:
    header = batch.header
    line = "|"
    if not given.has("skip-record-metadata"):
        delta = record.offset - header.base_offset
        sequence = -1 if header.base_sequence < 0 else (header.base_sequence + delta) & 0x7FFFFFFF
        names = ",".join(_text(name) for name, _ in record.headers)
        line += (
            f" offset: {record.offset} {time_type(batch)}: {record.timestamp} keySize: {_size(record.key)} "
            f"valueSize: {_size(record.value)} sequence: {sequence} headerKeys: [{names}]"
        )
        if header.is_control:
            line += control_words(record)
    if given.has("print-data-log") and not header.is_control:
        line += f" key: {_text(record.key)}" if record.key is not None else ""
        line += f" payload: {_text(record.value)}" if record.value is not None else ""
    return line


def control_words(record: Record) -> str:
    kind = decode_control_key(record.key)
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        return f" endTxnMarker: {kind.name} coordinatorEpoch: {decode_marker(record.value)}"
    return f" controlType: {'UNKNOWN' if kind is None else kind.name}({-1 if kind is None else kind.value})"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _text(data: bytes | None) -> str:
    return "" if data is None else data.decode(errors="replace")


def _java(value: bool) -> str:
    return "true" if value else "false"


# Indexes


def entries(file: Path, entry: struct.Struct) -> list[tuple[int, int]]:
    """Return the entries before the first that is not used yet."""
    data = file.read_bytes()
    found: list[tuple[int, int]] = []
    for first, second in entry.iter_unpack(data[: len(data) // entry.size * entry.size]):
        if found and first <= 0:
            break
        found.append((first, second))
    return found


def check_sanity(file: Path, entry: struct.Struct) -> None:
    if file.stat().st_size % entry.size:
        raise Exit(1, f"{file} is corrupt: its size is not a multiple of {entry.size}")
    print_line(f"{file} passed sanity check.")


def dump_index(file: Path, given: Given) -> None:
    if given.has("index-sanity-check"):
        check_sanity(file, INDEX_ENTRY)
        return
    base, found = base_offset(file), entries(file, INDEX_ENTRY)
    if not found:
        print_line(f"{file} is empty.")
        return
    with open(file.with_suffix(".log"), "rb") as opened:
        data = memoryview(opened.read())
    wrong = []
    for relative, position in found:
        batch = next(whole_batches(data[position:]), None)
        if batch is None or not batch.header.base_offset <= base + relative <= batch.header.last_offset:
            wrong.append((base + relative, -1 if batch is None else batch.header.last_offset))
        if not given.has("verify-index-only"):
            print_line(f"offset: {base + relative} position: {position}")
    if wrong:
        sys.stderr.write(f"Mismatches in :{file.absolute()}\n")
        for indexed, logged in wrong:
            sys.stderr.write(f"  Index offset: {indexed}, log offset: {logged}\n")


def dump_time_index(file: Path, given: Given) -> None:
    if given.has("index-sanity-check"):
        check_sanity(file, TIME_ENTRY)
        return
    base, last_ms = base_offset(file), NO_TIMESTAMP
    for time_ms, relative in entries(file, TIME_ENTRY):
        if time_ms < last_ms:
            sys.stderr.write(f"Found out of order timestamp in :{file.absolute()}\n")
        last_ms = time_ms
        if not given.has("verify-index-only"):
            print_line(f"timestamp: {time_ms} offset: {base + relative}")
