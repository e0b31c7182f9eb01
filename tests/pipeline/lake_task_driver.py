"""Runs a pipeline with a lake sink once, on a cluster; the first task of each batch meets what FATES says.

python lake_task_driver.py FILE MASTER

What runs in tasks is in this file, which is the main program: so Spark sends it to its workers by value.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

# For each batch: whether the process that dies is the Python worker or the executor, Java included, and when that is.
# `overtaken`: the first attempt has written its file, and then takes so long that Spark starts a second one.
FATES = ("worker writing", "worker written", "executor writing", "executor written", "overtaken")
STORY = "attempts.txt"
WAIT_S = 120


class Fate:
    """The fate of an attempt. It tells the story in a file, a line for each thing that happens."""

    def __init__(self, directory: Path) -> None:
        self.story = directory / STORY

    def meet(self, moment: str, files: Iterable[str] = ()) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        fate, attempt = FATES[batch % len(FATES)], context.attemptNumber()
        if context.partitionId() != 0:
            return
        if attempt > 0:  # Spark may have found the first one slow
            self.wait_for(lambda other: other == "0", batch)
        if moment == "written":
            self.tell(batch, attempt, "wrote", *files)
        if attempt > 0:
            return
        victim, _, when = fate.partition(" ")
        if when == moment:
            self.tell(batch, attempt, f"{victim} killed {moment}")
            os.kill(os.getpid() if victim == "worker" else executor(), signal.SIGKILL)
            time.sleep(WAIT_S)  # the executor takes this process with it
        elif fate == "overtaken" and moment == "written":
            self.wait_for(lambda other: other != "0", batch)

    def tell(self, *words: Any) -> None:
        with self.story.open("a") as file:
            file.write(" ".join(map(str, words)) + "\n")

    def wait_for(self, is_awaited: Callable[[str], bool], batch: int) -> None:
        """Until such an attempt of this task has told something."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            told = (
                [line.split() for line in self.story.read_text().splitlines()] if self.story.exists() else []
            )
            if any(one == str(batch) and is_awaited(attempt) for one, attempt, *_ in told):
                return
            time.sleep(0.02)


def executor() -> int:
    """The JVM that started the daemon that started this worker."""
    status = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(status.rsplit(")", 1)[1].split()[1])


def haunt_files(fate: Fate) -> None:
    """Each batch of rows becomes a row group, so that a file is half written once the second one comes."""
    from odradek.pipeline.kinds.lake import files

    write_task = files.write_task

    def slowly(batches: Iterator[Any]) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            if number:
                fate.meet("writing")
            yield batch

    def haunted(batches: Iterator[Any], target: Any) -> Iterator[Any]:
        from odradek.pipeline.kinds.lake import files

        files.ROW_GROUP_BYTES = 1
        found = list(write_task(slowly(batches), target))
        fate.meet("written", [one.path for one in found])
        yield from found

    files.write_task = haunted  # type: ignore[assignment]


def haunt_upserts(fate: Fate) -> None:
    """Their tasks write no files: rows go to the driver."""
    from odradek.pipeline.kinds.delta_sink import DeltaSinkKind

    last_rows = DeltaSinkKind._last_rows

    def haunted(self: Any, frame: Any, upsert: Any) -> Any:
        def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
            for number, batch in enumerate(batches):
                if number:
                    fate.meet("writing")
                yield batch
            fate.meet("written")

        return last_rows(self, frame.mapInArrow(pass_on, frame.schema), upsert)

    DeltaSinkKind._last_rows = haunted  # type: ignore[method-assign]


def main() -> None:
    from odradek.pipeline.file.reading import load
    from odradek.pipeline.run.running import Events, PipelineRun, Supervisor
    from odradek.pipeline.session import start

    path, master = Path(sys.argv[1]), sys.argv[2]
    spark = start(
        master, json.loads(os.environ["ODRADEK_SPARK_SETTINGS"]), log_file=path.parent / "spark.log"
    )
    fate = Fate(path.parent)
    haunt_files(fate)
    haunt_upserts(fate)
    run = PipelineRun(spark, load(path), Events(), once=True)
    run.prepare()
    Supervisor([run]).run()
    print(run.problem or "finished", flush=True)
    sys.exit(run.problem is not None)


if __name__ == "__main__":
    main()
