"""A small blocking client over `wire`: for the command line, Spark's tasks and tests."""
