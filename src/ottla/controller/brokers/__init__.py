"""Brokers: registrations, heartbeats, fencing, and the log directories of their replicas."""
