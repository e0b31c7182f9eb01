"""The pipeline's file: from TOML to dataclasses. Nothing here uses Spark, a cluster or a checkpoint."""
