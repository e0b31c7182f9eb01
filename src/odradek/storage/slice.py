"""A run of bytes in a file: what a fetch hands to the socket instead of the bytes themselves."""

from typing import NamedTuple

from odradek.storage.files import File


class Slice(NamedTuple):
    file: File
    position: int
    length: int
