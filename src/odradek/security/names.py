"""The distinguished name of a certificate, as Java writes it (X500Principal.getName, RFC 2253).

Kafka's principals are these strings, so ACLs and mapping rules depend on every character: the last part comes first,
without blanks after commas, and attributes that RFC 2253 does not name are written as numbers with their value in hex.
The name is read from the certificate's DER, because OpenSSL's own strings have lost what Java looks at. The certificate
was verified before: what cannot be read here is an error, but no way in.
"""

from collections.abc import Iterator
from typing import NamedTuple

# The keys are encoded object identifiers.
KEYWORDS = {
    bytes.fromhex("550403"): "CN",
    bytes.fromhex("550406"): "C",
    bytes.fromhex("550407"): "L",
    bytes.fromhex("550408"): "ST",
    bytes.fromhex("550409"): "STREET",
    bytes.fromhex("55040a"): "O",
    bytes.fromhex("55040b"): "OU",
    bytes.fromhex("0992268993f22c640119"): "DC",
    bytes.fromhex("0992268993f22c640101"): "UID",
}
ENCODINGS = {  # of the string types, by tag
    0x0C: "utf-8",
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # T61String, as Java reads it
    0x16: "ascii",  # IA5String
    0x1B: "ascii",  # GeneralString
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
ESCAPED = frozenset(',=+<>#;"\\')
BLANKS = " \r"
VERSION_TAG, SEQUENCE, SET, OBJECT_IDENTIFIER = 0xA0, 0x30, 0x31, 0x06


class BadCertificate(ValueError):
    """The bytes are not a certificate."""


class _Value(NamedTuple):
    tag: int
    content: bytes
    encoded: bytes  # with tag and length


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER."""
    whole = _only(certificate)
    fields = [item for item in _values(_first(whole.content).content) if item.tag != VERSION_TAG]
    if len(fields) < 5:  # serial number, algorithm, issuer, validity, subject
        raise BadCertificate("it has no subject")
    return name_to_text(fields[4].encoded)


def name_to_text(encoded: bytes) -> str:
    parts = [_part_to_text(part) for part in _values(_expect(_only(encoded), SEQUENCE))]
    return ",".join(reversed(parts))


def _part_to_text(part: _Value) -> str:
    return "+".join(_attribute_to_text(attribute) for attribute in _values(_expect(part, SET)))


def _attribute_to_text(attribute: _Value) -> str:
    items = list(_values(_expect(attribute, SEQUENCE)))
    if len(items) != 2:
        raise BadCertificate("an attribute of a name is not a pair")
    kind, value = items
    identifier = _expect(kind, OBJECT_IDENTIFIER)
    keyword = KEYWORDS.get(identifier)
    if keyword is None or value.tag not in ENCODINGS:
        return f"{keyword or _dotted(identifier)}=#{value.encoded.hex()}"
    return f"{keyword}={_escape(value.content.decode(ENCODINGS[value.tag], errors='replace'))}"


def _escape(text: str) -> str:
    escaped = "".join(f"\\{char}" if char in ESCAPED else ("\\00" if char == "\0" else char) for char in text)
    stripped = escaped.strip(BLANKS)
    if not stripped:
        return "".join(f"\\{char}" for char in escaped)
    lead = len(escaped) - len(escaped.lstrip(BLANKS))
    blanks_before, blanks_after = escaped[:lead], escaped[lead + len(stripped) :]
    before, after = ("".join(f"\\{char}" for char in blanks) for blanks in (blanks_before, blanks_after))
    return f"{before}{stripped}{after}"


def _dotted(identifier: bytes) -> str:
    numbers, number = [], 0
    for byte in identifier:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


# --- DER ---


def _values(data: bytes) -> Iterator[_Value]:
    position = 0
    while position < len(data):
        start = position
        try:
            tag, length = data[position], data[position + 1]
            position += 2
            if length & 0x80:
                count = length & 0x7F
                if not 1 <= count <= 4 or position + count > len(data):
                    raise BadCertificate("a length that is too large")
                length = int.from_bytes(data[position : position + count], "big")
                position += count
        except IndexError:
            raise BadCertificate("its end is missing") from None
        if position + length > len(data):
            raise BadCertificate("its end is missing")
        yield _Value(tag, data[position : position + length], data[start : position + length])
        position += length


def _first(data: bytes) -> _Value:
    for value in _values(data):
        return value
    raise BadCertificate("it is empty")


def _only(data: bytes) -> _Value:
    value = _first(data)
    if len(value.encoded) != len(data):
        raise BadCertificate("something follows its end")
    return value


def _expect(value: _Value, tag: int) -> bytes:
    if value.tag != tag:
        raise BadCertificate(f"a value of type {value.tag} where {tag} belongs")
    return value.content
