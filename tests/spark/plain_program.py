"""A program as people write it, started as people start it: `.venv/bin/python program.py BOOTSTRAP CHECKPOINTS`.

It writes and streams with settings that mean nothing here, then starts a query on brokers that are not there.
"""

import sys

import odradek.spark

spark = odradek.spark.session()
servers = {"kafka.bootstrap.servers": sys.argv[1]}
rows = spark.createDataFrame([("a", "1"), ("b", "2")], "key string, value string")
for _ in range(2):
    rows.write.format("odradek").options(**servers, topic="plain").option("kafka.acks", "1").mode(
        "append"
    ).save()

source = spark.readStream.format("odradek").options(**servers).option("subscribe", "plain")
frame = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 2).load()
sink = (
    frame.select("key", "value")
    .writeStream.format("odradek")
    .options(**servers)
    .option("kafka.linger.ms", "5")
)
query = sink.option("topic", "copies").option("checkpointLocation", f"{sys.argv[2]}/good")
query.trigger(availableNow=True).start().awaitTermination()
print(spark.read.format("odradek").options(**servers, subscribe="copies").load().count())

away = (
    spark.readStream.format("odradek")
    .option("kafka.bootstrap.servers", "127.0.0.1:1")
    .option("subscribe", "t")
)
query = away.load().writeStream.format("noop").option("checkpointLocation", f"{sys.argv[2]}/away").start()
query.awaitTermination()
