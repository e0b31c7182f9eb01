"""Failures of requests to a cluster: one line each, with the cause and, if there is one, the next step."""

from odradek.errors import ErrorCode

NEXT_STEPS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic (see 'odradek topic list')",
    ErrorCode.GROUP_ID_NOT_FOUND: "no such group (see 'odradek group list')",
    ErrorCode.NON_EMPTY_GROUP: "the group has active members: stop them first "
    "(see 'odradek group describe{subject} --members')",
}


class AdminError(Exception):
    """The request cannot be carried out; the message is the one line that its user sees."""


class BadRequest(AdminError):
    """The request makes no sense, whatever the cluster is like."""


class Refused(AdminError):
    """A broker refused it, with this error code. `reason` is the message without its subject."""

    def __init__(self, code: ErrorCode, message: str | None = None, subject: str | None = None) -> None:
        self.code = code
        self.said = message  # by the broker
        self.reason = reason_of(code, message, subject)
        super().__init__(f"{subject}: {self.reason}" if subject else self.reason)


class NoContact(AdminError):
    """A broker cannot be reached, or does not understand us."""

    def __init__(
        self, message: str, *, is_refused: bool = False, is_silent: bool = False, is_mismatch: bool = False
    ) -> None:
        super().__init__(message)
        self.is_refused = is_refused  # nothing listens there
        self.is_silent = is_silent  # it did not respond in time
        self.is_mismatch = is_mismatch  # it seems to want other client settings


def reason_of(code: ErrorCode, message: str | None = None, subject: str | None = None) -> str:
    """Say in a sentence what an error code means; `subject` is the topic or the group that it is about."""
    if code in NEXT_STEPS:
        return NEXT_STEPS[code].format(subject=f" {subject}" if subject else "")
    return message or words(code)


def words(code: int) -> str:
    """An error code as a phrase: `not leader or follower`."""
    return ErrorCode(code).name.lower().replace("_", " ")


def check(code: int, message: str | None = None, subject: str | None = None) -> None:
    """Raise Refused if there is an error code."""
    if code:
        raise Refused(ErrorCode(code), message, subject)
