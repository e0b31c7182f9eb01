"""A small run of `frame_fuzz`; the full one, of 100,000 connections, is `long`."""

import pytest

from odradek.testing import broker
from tests.security.frame_fuzz import check, fuzz


@pytest.mark.parametrize("count", [400, pytest.param(100_000, marks=pytest.mark.long)])
def test_what_nobody_would_send_harms_nobody(count):
    with broker(security="SASL_SSL") as kafka:
        check(kafka, fuzz(kafka, count, seed=1))
