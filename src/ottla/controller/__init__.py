"""The controller's deciders: (image, request) -> records and a response.

Pure: knows the metadata and Kafka's messages, and neither how records are stored nor how brokers
are reached. Start at `topics/create_topics.py` and `elections/partition_change.py`.
"""
