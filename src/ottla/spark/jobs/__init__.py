"""PySpark jobs over topics and their remote segments: `audit`, `purge_check`, `export`, `replay`.

Each is a function of a SparkSession and options; `ottla pipeline` calls the same functions.
Listing, reading, comparing and writing happen inside tasks, in parallel; the driver gets findings,
names of files and sums. What is compared is decided in pure modules, in `rules`. How an export
becomes visible is in `exporting/export_journal.py`.
"""
