"""The console producer and consumer, on librdkafka.

They know a cluster as any client does. Start at `console_consumer.py`.
"""
