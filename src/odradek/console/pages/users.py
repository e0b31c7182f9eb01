"""Users that log in to the cluster with SCRAM. Offered only where the cluster serves it."""

from dataclasses import dataclass

from odradek.admin.failures import BadRequest
from odradek.admin.users import UserView, remove_credential, set_password, users_of
from odradek.console.registry import Action, Page
from odradek.console.requests import Ask, NotFound, doc
from odradek.console.users import Role
from odradek.security.credentials import DEFAULT_ITERATIONS, SCRAM_MECHANISMS


@dataclass(frozen=True)
class UserList:
    users: list[UserView]
    mechanisms: list[str]


def view(ask: Ask) -> UserList:
    return UserList(users_of(ask.access()), list(SCRAM_MECHANISMS))


@dataclass(frozen=True)
class UserBody:
    user: str = doc("The name that the user logs in with.")
    password: str = doc("It is salted here: the cluster never sees it.")
    mechanism: str = doc("How the user logs in.", "SCRAM-SHA-512")


def add(ask: Ask) -> dict[str, str]:
    body: UserBody = ask.body
    if not body.user or not body.password:
        raise BadRequest("give a name and a password")
    if body.mechanism not in SCRAM_MECHANISMS:
        raise BadRequest(f"{body.mechanism} is not one of {', '.join(SCRAM_MECHANISMS)}")
    set_password(ask.access(), body.user, body.mechanism, body.password, DEFAULT_ITERATIONS)
    return {"said": f"User {body.user} logs in with {body.mechanism}."}


@dataclass(frozen=True)
class RemoveUserBody:
    user: str = doc("The name.")
    confirm: str = doc("The name once more.")


def remove(ask: Ask) -> dict[str, str]:
    name = ask.body.user
    if ask.body.confirm != name:
        raise BadRequest(f"type the name of the user, {name}, to remove it")
    access = ask.access()
    found = [one for one in users_of(access) if one.user == name]
    if not found:
        raise NotFound(f"there is no user {name}")
    for one in found:
        remove_credential(access, one)
    return {"said": f"Removed user {name}."}


PAGES = [
    Page(
        path="users",
        title="Users",
        view=view,
        template="users.html",
        summary="List the users that log in with a password (SCRAM).",
        nav="Users",
        role=Role.ADMIN,
        needs="users",
    )
]
ACTIONS = [
    Action(
        *("POST", "users", "Add a user, or give it a new password.", add, Role.ADMIN),
        body=UserBody,
        target=lambda ask: ask.body.user,
    ),
    Action(
        *("DELETE", "users", "Remove a user.", remove, Role.ADMIN),
        body=RemoveUserBody,
        target=lambda ask: ask.body.user,
    ),
]
