"""The audit log: who was refused, who failed to log in, who changed what; and no secrets."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.apis.row import Resource
from odradek.controller.changes import changes
from odradek.errors import AuthenticationFailed, ErrorCode
from odradek.metadata.delta import acl_of
from odradek.metadata.image import MetadataImage
from odradek.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from odradek.model import Caller, Principal
from odradek.serving import audit
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityDataInRequest,
    EntryDataInRequest,
    OpData,
)
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.broker.in_process import InProcess
from tests.serving.acl import Acl
from tests.serving.test_acls import ALICE, BOB, Guarded
from tests.serving.test_conversation import Handler, frames, scenario, settle

ADA = Caller(Principal("User", "ada"), "10.0.0.1:5", "SASL_SSL", "etl")


def audited(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "odradek.audit"]


def fields_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [getattr(record, "fields", {}) for record in caplog.records if record.name == "odradek.audit"]


def test_denied_requests(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with InProcess(str(tmp_path), authorizer=Acl((Resource.TOPIC, "secret"))) as node:
            asked = ListOffsetsTopic("secret", [ListOffsetsPartition(0)])
            for _ in range(3):
                response = await node.ask(ListOffsetsRequest(-1, 0, [asked]), 7)
            code = response.topics[0].partitions[0].error_code
            assert code == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    with caplog.at_level(logging.INFO):
        asyncio.run(work())
    first, counted = audited(caplog)
    assert first.startswith(
        'refused ListOffsets v7 of "secret", partition 0 from 127.0.0.1:1 (client "test")'
    )
    assert "2 more" in counted
    assert {"api": "ListOffsets", "principal": "User:ANONYMOUS"}.items() <= fields_of(caplog)[0].items()
    others = [record.getMessage() for record in caplog.records if record.name == "odradek.serving.refused"]
    assert not any("secret" in line for line in others), "a refusal is logged once"


def test_another_user_of_the_same_machine_is_named_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A line that was written about one user is not counted as a repeat of it."""
    asked = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("secret", [ListOffsetsPartition(0)])])

    async def work() -> None:
        async with Guarded(str(tmp_path)) as node:
            for who in (ALICE, BOB, ALICE):
                await node.ask(asked, 7, who)

    with caplog.at_level(logging.INFO):
        asyncio.run(work())
    first, second, counted = audited(caplog)
    assert "User:alice" in first and "User:bob" in second
    assert "1 more" in counted and "from User:alice at 127.0.0.1: ListOffsets of" in counted


def test_changed_users_and_quotas(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    salted = bytes(range(32))

    async def work() -> None:
        async with InProcess(str(tmp_path)) as node:
            upsertion = ScramCredentialUpsertion("eve", 1, 4096, b"the salt", salted)
            await node.ask(AlterUserScramCredentialsRequest([], [upsertion]), 0)
            await node.ask(AlterUserScramCredentialsRequest([ScramCredentialDeletion("eve", 1)], []), 0)
            entry = EntryDataInRequest(
                [EntityDataInRequest("user", "eve")], [OpData("producer_byte_rate", 5.0)]
            )
            await node.ask(AlterClientQuotasRequest([entry]), 1)
            await node.ask(AlterClientQuotasRequest([entry], validate_only=True), 1)

    with caplog.at_level(logging.DEBUG):
        asyncio.run(work())
    who = '127.0.0.1:1 (client "test")'
    assert audited(caplog) == [
        f'{who} set the SCRAM-SHA-256 credential of user "eve"',
        f'{who} removed the SCRAM-SHA-256 credential of user "eve"',
        f'{who} set the quota producer_byte_rate of user "eve" from no limit to 5',
    ]
    assert all(one["event"] == "change" and one["address"] == "127.0.0.1:1" for one in fields_of(caplog))
    assert (
        "the salt" not in caplog.text and salted.hex() not in caplog.text and str(salted) not in caplog.text
    )


def test_a_refused_quota_names_its_entity(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with InProcess(str(tmp_path)) as node:
            named = [EntityDataInRequest("user", "e\nve"), EntityDataInRequest("client-id", None)]
            await node.ask(
                AlterClientQuotasRequest([EntryDataInRequest(named, [OpData("nonsense", 5.0)])]), 1
            )

    with caplog.at_level(logging.INFO):
        asyncio.run(work())
    assert r'refused AlterClientQuotas v1 of "client-id" none, "user" "e\nve" from 127.0.0.1:1' in caplog.text


def test_failed_logins(caplog: pytest.LogCaptureFixture) -> None:
    async def work(handler: Handler) -> None:
        def fail(request: Any) -> None:
            raise AuthenticationFailed("unknown user or wrong password (PLAIN)")

        handler.script = fail
        transport, _ = handler.connect()
        transport.arrive(*frames(1))
        await settle()
        assert transport.closed

    with caplog.at_level(logging.INFO):
        scenario(work)
    assert audited(caplog) == [
        'refused 127.0.0.1:1 (client "test") on listener PLAINTEXT: '
        "authentication failed: unknown user or wrong password (PLAIN)"
    ]


def test_what_a_client_says_stays_on_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        audit.login_failed(ADA._replace(client_id="a\nb"), "no\nsuch thing")
    (line,) = audited(caplog)
    assert "\n" not in line and "User:ada" in line


def test_acls_are_told_in_words() -> None:
    acl_id = UUID(int=42)
    added = AccessControlEntryRecord(acl_id, 2, "t", 3, "User:eve", "*", 3, 2)
    before = replace(MetadataImage("c"), acls={acl_id: acl_of(added)})
    told = [
        *changes(MetadataImage("c"), [added]),
        *changes(before, [RemoveAccessControlEntryRecord(acl_id)]),
    ]
    assert [change.text for change in told] == [
        "created ACL DENY User:eve from * to READ TOPIC t (LITERAL)",
        "removed ACL DENY User:eve from * to READ TOPIC t (LITERAL)",
    ]
    assert all(change.is_audited for change in told)
