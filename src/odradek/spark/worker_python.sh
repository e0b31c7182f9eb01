#!/bin/sh
# The Python of Spark's workers on one machine: $ODRADEK_WORKER_PYTHON, with PySpark as it is installed there.
# Spark puts its own copy in pyspark.zip first, which has no bytecode: every process would compile it again.
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
    case $entry in
        "$SPARK_HOME"/python/lib/*.zip) ;;
        *) kept=$kept${kept:+:}$entry ;;
    esac
done
PYTHONPATH=$kept exec "${ODRADEK_WORKER_PYTHON:-python3}" "$@"
