"""The blocking cluster client over `wire`: for the command line, Spark and tests."""
