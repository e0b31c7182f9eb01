"""Makes `format("odradek")` known to Spark, which looks into every package named `pyspark_*`.

This package must never fail to import: a neighbour that does hides every Python data source from Spark. So
where PySpark is too old the format still exists, and says so when it is used.
"""

from typing import Any

import pyspark

OLDEST_PYSPARK = (4, 2)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


if _version(pyspark.__version__) >= OLDEST_PYSPARK:
    from odradek.spark.source import OdradekDataSource as DefaultSource
else:
    from pyspark.sql.datasource import DataSource

    class DefaultSource(DataSource):  # type: ignore[no-redef]
        @classmethod
        def name(cls) -> str:
            return "odradek"

        def _refuse(self, *_: Any) -> Any:
            raise RuntimeError(
                f"format('odradek') needs PySpark 4.2 or newer, this is {pyspark.__version__}: "
                "pip install 'pyspark>=4.2'"
            )

        schema = reader = streamReader = writer = streamWriter = _refuse  # type: ignore[assignment]


__all__ = ["DefaultSource"]
