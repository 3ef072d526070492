"""Kafka's wire protocol: messages as declarations, their codec, headers and frames.

Imports `base` only. Start at `schema.py`, which is how `messages` are declared; `codec` encodes and
decodes them, `frames` adds headers and sizes, `registry` finds them by API key.
"""
