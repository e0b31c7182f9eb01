#!/bin/sh
# Runs the pipeline with a catalog that remembers its tables from one run to the next (Hive's, in a Derby database).
# Spark's default one forgets them at the end, and `spark-pipelines run` passes no --conf on to it: a file does.
set -eu
cd "$(dirname "$0")"
state=${STATE_DIRECTORY:-$PWD/state}
mkdir -p "$state/conf"
sed "s|STATE_DIRECTORY|$state|" spark-pipeline.template.yml > "$state/spark-pipeline.yml"
rm -rf "$state/definitions" && cp -r definitions "$state/definitions"
cat > "$state/conf/spark-defaults.conf" <<END
spark.sql.catalogImplementation                    hive
spark.sql.warehouse.dir                            $state/warehouse
spark.hadoop.javax.jdo.option.ConnectionURL        jdbc:derby:;databaseName=$state/catalog;create=true
spark.hadoop.datanucleus.schema.autoCreateAll      true
spark.hadoop.hive.metastore.schema.verification    false
spark.driver.extraJavaOptions                      -Dderby.stream.error.file=$state/derby.log
spark.ui.enabled                                   false
END
export SPARK_CONF_DIR="$state/conf"
cd "$state"
exec "${SPARK_PIPELINES:-spark-pipelines}" run --spec "$state/spark-pipeline.yml"
