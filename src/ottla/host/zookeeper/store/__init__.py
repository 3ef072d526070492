"""The metadata in ZooKeeper: reads znodes into an image, writes a controller's records.

Plans with `metadata/znodes`, and checks the controller's epoch in every write.
Start at `store.py`.
"""
