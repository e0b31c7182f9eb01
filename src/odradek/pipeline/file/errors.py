"""Problems of a pipeline: the file, the line, the key, and what to do about it."""

from pathlib import Path


class PipelineError(Exception):
    """The message is all that a user sees; file and line come first, as in compilers."""

    def __init__(
        self, problem: str, file: Path | None = None, line: int | None = None, key: str = ""
    ) -> None:
        self.problem, self.file, self.line, self.key = problem, file, line, key
        super().__init__(self.text())

    def text(self) -> str:
        place = "" if self.file is None else f"{self.file}:{self.line}: " if self.line else f"{self.file}: "
        return f"{place}{self.key}: {self.problem}" if self.key else f"{place}{self.problem}"


class Unreachable(PipelineError):
    """Something outside does not respond. The pipeline itself is good, and a retry may succeed."""


class PipelineErrors(PipelineError):
    """Several at once: a check does not stop at the first."""

    def __init__(self, errors: list[PipelineError]) -> None:
        self.errors = sorted(errors, key=lambda error: (str(error.file or ""), error.line or 0))
        first = self.errors[0]
        super().__init__(first.problem, first.file, first.line, first.key)

    def text(self) -> str:
        return "\n".join(error.text() for error in getattr(self, "errors", []))

    def __str__(self) -> str:
        return self.text()
