"""A record of the ledger: which batch of a sink was written last, and what it took.

The key is the sink's id. The value is JSON, so that any tool can show it; fields that a reader does not know are
ignored.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

FORMAT = 1
ANY = "any"  # the fingerprint of a record that an operator wrote: it stands for whatever the batch has read


class UnreadableRecord(Exception):
    """A record of the ledger that this version cannot read."""


@dataclass(frozen=True)
class Entry:
    """`fingerprint` stands for what the batch has read. `phases` are milliseconds by what they were spent on."""

    batch: int
    fingerprint: str
    rows: int = 0
    milliseconds: int = 0
    written_at_ms: int = 0
    name: str = ""  # what people call the sink
    topics: tuple[str, ...] = ()
    phases: Mapping[str, int] = field(default_factory=dict)

    def is_of(self, fingerprint: str) -> bool:
        return self.fingerprint in (fingerprint, ANY)


def encode_entry(entry: Entry) -> bytes:
    return json.dumps({"format": FORMAT, **asdict(entry)}, separators=(",", ":")).encode()


def decode_entry(key: str, value: bytes) -> Entry:
    try:
        found: dict[str, Any] = json.loads(value)
        if found["format"] != FORMAT:
            raise UnreadableRecord(
                f"the ledger's record of {key} has format {found['format']}, this version reads {FORMAT}: "
                "use the version that wrote it"
            )
        known = {name: found[name] for name in Entry.__dataclass_fields__ if name in found}
        return Entry(**(known | {"topics": tuple(found.get("topics", ()))}))
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableRecord(f"the ledger's record of {key} cannot be read: {error}") from None
