#!/bin/sh
# Runs the pipeline with a catalog that remembers its tables from one run to the next.
set -eu
cd "$(dirname "$0")"
state=${STATE_DIRECTORY:-$PWD/state}
mkdir -p "$state"
sed "s|STATE_DIRECTORY|$state|" spark-pipeline.template.yml > "$state/spark-pipeline.yml"
rm -rf "$state/definitions" && cp -r definitions "$state/definitions"
cd "$state"  # Spark leaves its warehouse where it runs
exec "${SPARK_PIPELINES:-spark-pipelines}" run --spec "$state/spark-pipeline.yml" \
    --conf spark.sql.catalogImplementation=hive \
    --conf "spark.sql.warehouse.dir=$state/warehouse" \
    --conf "spark.hadoop.javax.jdo.option.ConnectionURL=jdbc:derby:;databaseName=$state/catalog;create=true" \
    --conf "spark.driver.extraJavaOptions=-Dderby.stream.error.file=$state/derby.log" \
    --conf spark.ui.enabled=false
