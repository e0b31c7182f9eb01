"""Runs a pipeline with a lake sink once, and is killed with its JVM at the moment that is named.

python lake_driver.py FILE "after append"
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from odradek.pipeline.file.reading import load
from odradek.pipeline.kinds import lake_sink
from odradek.pipeline.kinds.lake.delta import DeltaLakeTable
from odradek.pipeline.kinds.lake.iceberg import IcebergLakeTable
from odradek.pipeline.kinds.lake_sink import LakeSinkKind

STEPS: dict[str, list[Any]] = {
    "create": [DeltaLakeTable, IcebergLakeTable],
    "add_columns": [DeltaLakeTable, IcebergLakeTable],
    "append": [DeltaLakeTable, IcebergLakeTable],
    "merge": [DeltaLakeTable],
    "compact": [DeltaLakeTable, IcebergLakeTable],
    "write_files": [lake_sink],
    "write": [LakeSinkKind],
}


def die_at(moment: str) -> None:
    when, _, name = moment.partition(" ")
    for owner in STEPS[name]:
        setattr(owner, name, dying(getattr(owner, name), when))


def dying(step: Callable[..., Any], when: str) -> Callable[..., Any]:
    def carried_out(*arguments: Any) -> Any:
        if when == "before":
            die()
        step(*arguments)
        die()

    return carried_out


def die() -> None:
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    from odradek.pipeline.run.running import Events, PipelineRun, Supervisor
    from odradek.pipeline.session import start

    path, moment = Path(sys.argv[1]), sys.argv[2]
    settings = json.loads(os.environ["ODRADEK_SPARK_SETTINGS"])
    spark = start("local[2]", settings, log_file=path.parent / "spark.log")
    if moment != "never":
        die_at(moment)
    run = PipelineRun(spark, load(path), Events(), once=True)
    run.prepare()
    Supervisor([run]).run()
    print(run.problem or "finished", flush=True)


if __name__ == "__main__":
    main()
