"""Record batches in Kafka's format 2: header, CRC, compression, single records.

Pure functions over bytes; knows nothing of logs, topics or requests. Start at `batch.py`;
`columnar` decodes whole columns, for Spark only.
"""
