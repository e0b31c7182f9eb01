"""The users that log in with SCRAM, and changes of them. Passwords are salted here: the cluster never sees them."""

import os
from dataclasses import dataclass

from odradek.admin.access import Access
from odradek.admin.failures import check
from odradek.admin.requests import ask_any
from odradek.security.credentials import BY_CODE, SCRAM_MECHANISMS
from odradek.security.decoys import SALT_SIZE, new_salt
from odradek.security.scram import salt_password
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)


@dataclass(frozen=True)
class UserView:
    """A credential of a user; its fields are those of the JSON output."""

    user: str
    mechanism: str
    iterations: int


def users_of(cluster: Access) -> list[UserView]:
    response = ask_any(
        cluster, DescribeUserScramCredentialsRequest(None), DescribeUserScramCredentialsResponse
    )
    check(response.error_code, response.error_message, "users")
    views = [
        UserView(result.user, BY_CODE[info.mechanism].name, info.iterations)
        for result in response.results
        for info in result.credential_infos
        if info.mechanism in BY_CODE
    ]
    return sorted(views, key=lambda view: (view.user, view.mechanism))


def set_password(cluster: Access, name: str, mechanism: str, password: str, iterations: int) -> None:
    """Add the user, or give it a new password."""
    scram = SCRAM_MECHANISMS[mechanism]
    salt = new_salt(os.urandom(SALT_SIZE))
    salted = salt_password(scram, password, salt, iterations)
    upsertion = ScramCredentialUpsertion(name, scram.code, iterations, salt, salted)
    _alter(cluster, AlterUserScramCredentialsRequest([], [upsertion]))


def remove_credential(cluster: Access, view: UserView) -> None:
    deletion = ScramCredentialDeletion(view.user, SCRAM_MECHANISMS[view.mechanism].code)
    _alter(cluster, AlterUserScramCredentialsRequest([deletion], []))


def _alter(cluster: Access, request: AlterUserScramCredentialsRequest) -> None:
    response = ask_any(cluster, request, AlterUserScramCredentialsResponse)
    for result in response.results:
        check(result.error_code, result.error_message, f"user {result.user}")
