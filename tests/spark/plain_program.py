"""A program as people write it, started as people start it: `.venv/bin/python program.py BOOTSTRAP CHECKPOINTS`.

It writes and streams with settings that mean nothing here, shows what its workers import, then starts a query on
brokers that are not there.
"""

import sys

import odradek.spark

spark = odradek.spark.session(master="local[1]")
servers = {"kafka.bootstrap.servers": sys.argv[1]}
rows = spark.sql("SELECT 'a' AS key, '1' AS value")
rows.write.format("odradek").options(**servers, topic="plain").option("kafka.acks", "1").mode("append").save()

source = spark.readStream.format("odradek").options(**servers).option("subscribe", "plain")
frame = source.option("startingOffsets", "earliest").load().select("key", "value")
sink = frame.writeStream.format("odradek").options(**servers).option("kafka.linger.ms", "5")
sink = sink.option("topic", "copies").option("checkpointLocation", f"{sys.argv[2]}/good")
query = sink.trigger(availableNow=True).start()
query.awaitTermination()
print(sum(progress.numInputRows for progress in query.recentProgress))


def imported(_):
    return [__import__("sys").executable, __import__("pyspark").__file__, __import__("py4j").__file__]


print(*spark.sparkContext.parallelize([0], 1).flatMap(imported).collect(), sep="\n")

away = (
    spark.readStream.format("odradek")
    .option("kafka.bootstrap.servers", "127.0.0.1:1")
    .option("subscribe", "t")
)
query = away.load().writeStream.format("noop").option("checkpointLocation", f"{sys.argv[2]}/away").start()
query.awaitTermination()
