"""Kafka's wire protocol: messages as declarations, their codec, headers and frames.

`schema` is how messages are declared, `messages` declares those of Kafka, `codec` encodes and
decodes them, `frames` adds headers and sizes, `registry` finds them by API key.
"""
