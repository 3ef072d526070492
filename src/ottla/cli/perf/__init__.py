"""The performance tools of producers and consumers, with the output of Kafka's.

Start at `producer_perf.py`.
"""
