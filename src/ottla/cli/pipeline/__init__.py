"""`ottla pipeline`: jobs on Spark. Start with `pipeline`."""
