"""Kafka's settings: definitions, files, environment, and what DescribeConfigs says about them. `roles` tells whether a
node is broker, controller or both, and `listeners` where it listens.
"""
