"""`ottla tier`: tiered storage. Start with `tier`."""
