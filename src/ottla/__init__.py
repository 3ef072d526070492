"""Ottla: a Kafka-compatible log cluster in Python, whose topics are also Spark tables."""

__version__ = "0.1.0"
