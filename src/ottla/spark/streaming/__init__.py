"""Topics as streams: `spark.readStream.format("ottla")`. Start at `reader.py`.

`offsets`, `advance` and `rate_limits` decide, without I/O; `logs` asks brokers or the object store.
"""
