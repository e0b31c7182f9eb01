"""CRC-32C comes from the C extension of its package, loaded without the rest."""

import subprocess
import sys

import crc32c as package

from odradek.records import crc


def test_it_is_the_packages() -> None:
    assert crc.crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C
    assert crc.crc32c(memoryview(b"6789"), package.crc32c(b"12345")) == 0xE3069283


def test_the_package_is_not_imported() -> None:
    program = (
        "import sys, odradek.records.crc; print('importlib.metadata' in sys.modules, 'crc32c' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True).split() == ["False", "False"]
