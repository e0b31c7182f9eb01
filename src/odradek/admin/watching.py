"""Watch work that takes a while: moves of partitions, a cluster that grows or loses a broker. This watcher is silent;
a command line prints, a web console shows it."""


class Watcher:
    def note(self, text: str) -> None:
        """Show a sentence: a step begins, or its user should know something."""

    def progress(self, done: float, text: str) -> None:
        """Show progress: `done` is a share of the present step, from 0 to 1."""

    def clear(self) -> None:
        """The progress is over, or makes way for something else."""


SILENT = Watcher()
