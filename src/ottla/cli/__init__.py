"""The commands of `ottla`, with the options of Kafka's tools.

May know every package; but for `local` and `dump` the commands talk to a cluster as any client
does. Start at `main.py`.
"""
