"""A small blocking client over `wire`: for the command line, Spark's tasks and tests.

Knows one broker's connection and Kafka's messages; routing is its users'.
Start at `connection.py`.
"""
