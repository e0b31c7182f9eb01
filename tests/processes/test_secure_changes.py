"""Certificates and passwords change under load on three protected nodes, and no write fails."""

import random

import pytest

from tests.processes.secure_play import change_password, play, renew_certificate


@pytest.mark.long
def test_certificates_and_passwords_change_under_load(tmp_path):
    faults = [renew_certificate, change_password, renew_certificate, renew_certificate]
    ledger = play(tmp_path, iter(faults), random.Random(1))
    assert ledger.acknowledged > 0
