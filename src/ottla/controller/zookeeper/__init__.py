"""What only the controller of ZooKeeper mode does: its requests to brokers, and their responses.

Knows deltas of the image and Kafka's messages; not ZooKeeper itself, which is the host's.
Start at `broker_requests.py`.
"""
