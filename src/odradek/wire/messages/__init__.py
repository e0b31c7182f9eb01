"""The messages of Kafka's protocol, one module per API."""
