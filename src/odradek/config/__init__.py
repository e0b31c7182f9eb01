"""Configuration under Kafka's names: tables of keys, loading, resolution, and what DescribeConfigs shows."""
