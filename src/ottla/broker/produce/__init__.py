"""Appending for Produce: producer ids, batches that take long to check, delayed responses.

Knows hosted partitions; the check of batches itself is `log/validation.py`.
Start at `batch_work.py`; the handler is `api/k00_produce.py`.
"""
