"""The blocking cluster client over `wire`: for the command line, Spark's tasks and tests.

Knows messages and records only: bootstrap, metadata, routing to leaders and coordinators, retries
under one deadline. Start at `cluster.py`.
"""
