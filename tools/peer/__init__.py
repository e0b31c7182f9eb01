"""Apache Kafka as a peer: the broker ours is compared with, and whose tools read our files."""
