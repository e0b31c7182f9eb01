"""A request in an envelope: whatever a client sent arrives at the controller, and the response comes back."""

import io
from typing import Any

import pytest
from kio.schema.default_principal_data.v0.data import DefaultPrincipalData as KafkaPrincipal
from kio.schema.envelope.v0.request import EnvelopeRequest as KafkaEnvelope
from kio.serial import entity_reader, entity_writer

from odradek.apis.items import refuse
from odradek.apis.messages import request_type, response_type
from odradek.apis.table import APIS
from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.model import Caller, Principal
from odradek.serving.envelope import unwrap, unwrap_response, wrap, wrap_response
from odradek.wire.codec import drain, encode
from odradek.wire.frame import RequestHeader, encode_request, encode_response
from odradek.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.describe_quorum import DescribeQuorumResponse
from odradek.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from odradek.wire.messages.metadata import MetadataRequest
from tests.serving.sample_requests import sample

VERSIONS = [
    (api_key, version)
    for api_key in sorted(api.key for api in APIS.values() if api.is_forwarded)
    for version in range(request_type(api_key).MIN_VERSION, request_type(api_key).MAX_VERSION + 1)
]
ALICE = Caller(Principal("User", "alice"), "10.1.2.3:40000", client_id="a client")


def an_envelope(**changes: Any) -> EnvelopeRequest:
    envelope = wrap(CreateTopicsRequest(), 7, ALICE, 5)
    for name, value in changes.items():
        setattr(envelope, name, value)
    return envelope


def refusal_of(envelope: EnvelopeRequest) -> KafkaError:
    with pytest.raises(KafkaError) as refused:
        unwrap(envelope)
    return refused.value


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_a_request_arrives_as_it_was(api_key: int, version: int) -> None:
    request = sample(request_type(api_key), version)
    header, arrived, about = unwrap(wrap(request, version, ALICE, 77))
    assert arrived == request
    assert (header.api_key, header.version, header.correlation_id) == (api_key, version, 77)
    assert header.client_id == "a client"
    assert about == ALICE._replace(address="10.1.2.3")


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_a_response_comes_back_as_it_was(api_key: int, version: int) -> None:
    response = sample(response_type(api_key), version)
    header = RequestHeader(api_key, version, 77, "a client", 0)
    assert unwrap_response(wrap_response(response, header), api_key, version, 77) == response


def test_kafka_reads_the_envelope_and_the_principal() -> None:
    envelope = wrap(CreateTopicsRequest(), 7, ALICE, 5)
    theirs, _ = entity_reader(KafkaEnvelope)(bytes(encode(envelope, 0)), 0)
    assert theirs.request_data == bytes(encode_request(CreateTopicsRequest(), 19, 7, 5, "a client"))[4:]
    assert theirs.client_host_address == bytes([10, 1, 2, 3])
    assert theirs.request_principal[:2] == b"\0\0"
    principal, _ = entity_reader(KafkaPrincipal)(theirs.request_principal, 2)
    assert (principal.type_, principal.name, principal.token_authenticated) == ("User", "alice", False)
    again = io.BytesIO()
    entity_writer(KafkaEnvelope)(again, theirs)
    assert again.getvalue() == bytes(encode(envelope, 0))


def test_the_response_inside_has_no_size() -> None:
    response = CreateTopicsResponse(topics=[CreatableTopicResult("t")])
    wrapped = wrap_response(response, RequestHeader(19, 7, 5, None, 0))
    assert wrapped.response_data == bytes(encode_response(response, 19, 7, 5))[4:]


@pytest.mark.parametrize(
    ("client", "host"),
    [
        ("10.1.2.3:40000", "10.1.2.3"),
        ("10.1.2.3", "10.1.2.3"),
        ("::1:40000", "::1"),
        ("2001:db8::5:40000", "2001:db8::5"),
        ("a-simulated-client:40000", ""),
        ("", ""),
    ],
)
def test_a_client_is_known_by_its_ip_address(client: str, host: str) -> None:
    caller = Caller(address=client)
    assert unwrap(wrap(CreateTopicsRequest(), 7, caller, 5)).caller.host == host


def test_only_what_clients_ask_of_a_controller_is_forwarded() -> None:
    refusal = refusal_of(wrap(MetadataRequest(), 12, Caller(), 5))
    assert (refusal.code, refusal.message) == (
        ErrorCode.INVALID_REQUEST,
        "Metadata v12 is not forwarded to a controller.",
    )


def test_a_version_that_is_not_served_is_refused() -> None:
    data = bytearray(an_envelope().request_data)
    data[2:4] = (99).to_bytes(2)
    assert refusal_of(an_envelope(request_data=bytes(data))).code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "data", [b"", b"\0", bytes(8), an_envelope().request_data[:-1], an_envelope().request_data + b"x"]
)
def test_a_request_that_cannot_be_read_is_refused(data: bytes) -> None:
    assert refusal_of(an_envelope(request_data=data)).code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("principal", [None, b"", b"\0", b"\0\0", b"\xff\xff\5User\1\0\0", b"\0\0\x09User"])
def test_a_principal_that_cannot_be_read_is_refused(principal: bytes | None) -> None:
    envelope = an_envelope(request_principal=principal)
    assert refusal_of(envelope).code is ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE


@pytest.mark.parametrize("address", [b"", b"abc", bytes(15)])
def test_an_address_that_is_none_is_refused(address: bytes) -> None:
    assert refusal_of(an_envelope(client_host_address=address)).code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_that_a_controller_is_not_active_stands_on_the_envelope(api_key: int, version: int) -> None:
    request = sample(request_type(api_key), version)
    error = KafkaError(ErrorCode.NOT_CONTROLLER, "Ask node 3.")
    response = drain(refuse(request, version, error))
    wrapped = wrap_response(response, RequestHeader(api_key, version, 5, None, 0))
    assert wrapped == EnvelopeResponse(None, ErrorCode.NOT_CONTROLLER)
    with pytest.raises(KafkaError) as refused:
        unwrap_response(wrapped, api_key, version, 5)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


def test_other_errors_stay_inside() -> None:
    response = DescribeQuorumResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    wrapped = wrap_response(response, RequestHeader(55, 2, 5, None, 0))
    assert wrapped.error_code == ErrorCode.NONE
    assert unwrap_response(wrapped, 55, 2, 5) == response


def test_an_error_code_from_the_future_is_an_error() -> None:
    with pytest.raises(KafkaError) as refused:
        unwrap_response(EnvelopeResponse(None, 31_000), 19, 7, 5)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("data", [None, b"", b"\0\0\0\5", b"\0\0\0\6\0", b"\0\0\0\5\0\0"])
def test_a_response_that_cannot_be_read_breaks_the_protocol(data: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        unwrap_response(EnvelopeResponse(data), 19, 7, 5)
