"""Partitions and their replicas: states, in-sync replicas, reassignments.

Who becomes the leader is decided in `ottla.controller.elections`.
"""
