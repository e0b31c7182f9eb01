"""The process of one search or download. Its job comes as JSON on standard input, because it has the settings of the
cluster, and others can read command lines. It writes JSON lines: records, progress, the end; or a file's lines.

    python -m odradek.console.messages.child < job
"""

import base64
import csv
import io
import json
import sys
import time
from dataclasses import asdict
from typing import Any, BinaryIO

from odradek.admin.access import Access
from odradek.admin.failures import AdminError
from odradek.admin.message_text import to_json
from odradek.client.cluster import EARLIEST, LATEST, NO_OFFSET, Cluster
from odradek.console.messages.reading import offsets, places, reaching
from odradek.console.messages.scanning import Range, Scan
from odradek.console.messages.schemas import Schemas
from odradek.console.messages.showing import IN_A_LIST, Found, show_record
from odradek.console.rendering import moment

PROGRESS_S = 0.2
ERROR = b"error: "  # begins the last line of a download that failed
CSV_HEADER = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


def main() -> int:
    job: dict[str, Any] = json.load(sys.stdin)
    output = sys.stdout.buffer
    access = Access(job["bootstrap"], job["settings"], client_id="odradek-console")
    try:
        with reaching(access) as cluster:
            scan = Scan(cluster, _ranges(cluster, job), job["filters"])
            if job["format"] == "search":
                _search(scan, job, output)
            else:
                _download(scan, job, output)
    except BrokenPipeError:
        return 0
    except (AdminError, ValueError) as error:
        if job["format"] == "search":
            _line(output, {"error": str(error)})
        else:
            output.write(ERROR + f"{error}\n".encode())
        return 1
    return 0


def _ranges(cluster: Cluster, job: dict[str, Any]) -> list[Range]:
    wanted = places(cluster, job["topic"], job["partition"])
    starts, ends = offsets(cluster, wanted, EARLIEST), offsets(cluster, wanted, LATEST)
    first = dict(starts)
    if job["start_ms"] is not None:
        first = offsets(cluster, wanted, job["start_ms"])
    elif job["start_offset"] is not None:
        first = dict.fromkeys(starts, job["start_offset"])
    return [
        _part(Range(one, max(starts[number], first[number]), ends[number]), job["part"], job["parts"])
        for one in wanted
        for number in [one.partition]
        if first[number] != NO_OFFSET and max(starts[number], first[number]) < ends[number]
    ]


def _part(whole: Range, part: int, parts: int) -> Range:
    """A part of a range: several children share the work."""
    size = whole.end - whole.start
    return Range(whole.place, whole.start + size * part // parts, whole.start + size * (part + 1) // parts)


def _search(scan: Scan, job: dict[str, Any], output: BinaryIO) -> None:
    schemas = Schemas(job["registry"])
    count, told_s = 0, 0.0
    for found in scan.run():
        for one in found[: job["limit"] - count]:
            view = show_record(one, job["view"], IN_A_LIST, schemas.decode)
            _line(output, {"record": asdict(view)})
            count += 1
        if time.monotonic() - told_s > PROGRESS_S:
            told_s = time.monotonic()
            _line(output, {"scanned": scan.scanned, "total": scan.total})
        if count >= job["limit"]:
            break
    _line(
        output,
        {"scanned": scan.scanned, "total": scan.total, "end": True, "is_limited": count >= job["limit"]},
    )


def _line(output: BinaryIO, value: dict[str, Any]) -> None:
    output.write(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
    output.flush()


def _download(scan: Scan, job: dict[str, Any], output: BinaryIO) -> None:
    write = _csv_row if job["format"] == "csv" else _json_row
    if job["format"] == "csv":
        output.write(_csv_line(CSV_HEADER))
    count = 0
    for found in scan.run():
        for one in found[: job["limit"] - count]:
            output.write(write(job["topic"], one))
            count += 1
        if count >= job["limit"]:
            return


def _json_row(topic: str, found: Found) -> bytes:
    record = found.record
    fields = {
        "topic": topic,
        "partition": found.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "time": moment(record.timestamp) or None,
        "key": to_json(record.key),
        "value": to_json(record.value),
        "headers": [[name.decode(errors="replace"), to_json(value)] for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def _csv_row(topic: str, found: Found) -> bytes:
    record = found.record
    headers = json.dumps(
        [[name.decode(errors="replace"), to_json(value)] for name, value in record.headers],
        ensure_ascii=False,
    )
    cells = (
        _text_cell(topic),
        found.partition,
        record.offset,
        record.timestamp,
        _cell(record.key),
        _cell(record.value),
        headers,
    )
    return _csv_line(cells)


def _cell(data: bytes | None) -> str:
    if data is None:
        return ""
    try:
        return _text_cell(data.decode())
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(data).decode()


def _text_cell(text: str) -> str:
    """Text that a spreadsheet does not take for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _csv_line(cells: Any) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer).writerow(cells)
    return buffer.getvalue().encode("utf-8", "surrogatepass")


if __name__ == "__main__":
    sys.exit(main())
