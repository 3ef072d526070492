"""A small blocking client over `wire`: for the command line, for Spark's tasks, for tests."""
