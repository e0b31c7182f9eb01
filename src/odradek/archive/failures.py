"""Why something cannot be archived, or an archive cannot be read. The message says what to do."""


class ArchiveError(Exception):
    """An archive cannot do what was asked; the message is one sentence or two."""


class Final(ArchiveError):
    """One that no later attempt can change."""


class AnotherArchiver(Final):
    """Another process has archived the same topic into the same table meanwhile."""


class RecordsLost(Final):
    """Records were deleted from the topic before they were archived."""


class OtherTopic(Final):
    """The table belongs to an earlier topic of the same name."""


class TableGone(Final):
    """The table was deleted, or deleted and created again, while it was in use."""


class MissingArchive(ArchiveError):
    """There is no table of this topic."""


class MissingExtra(Final):
    """A package is not installed."""
