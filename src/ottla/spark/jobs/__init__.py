"""PySpark jobs over tiered topics: `audit` and `purge_check`.

Each is a function from a SparkSession and options to a DataFrame; `ottla pipeline` calls the same
functions. Listing, reading and comparing happen inside tasks, in parallel; the driver gets findings
and summaries. What is compared is decided in pure modules: `partition_rules`, `manifest_rules`,
`segment_bytes`, `purge_rules`.
"""
