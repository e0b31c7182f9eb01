"""Failures of commands: one line each, with the cause and, if there is one, the next step."""

from odradek.admin.failures import AdminError


class CommandError(AdminError):
    """The command cannot continue; the message is the one line that its user sees."""
