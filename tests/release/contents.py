"""The contents of a release's data directory, which a later one must find."""

PLAIN, COMPACTED, TRANSACTIONAL = "plain", "compacted", "transactional"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 40  # of each codec
RETENTION_MS = 4_000_000_000_000  # so that nothing expires until a later release reads it
GROUP = "readers"
OFFSETS = {0: 17, 1: 42}
COMMITTED, ABORTED = "committed", "aborted"


def value_of(codec: str, number: int) -> str:
    return f"{codec} {number} " + "x" * 50
