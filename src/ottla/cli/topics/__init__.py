"""The commands about topics: create, describe, alter, delete; deletions; idle topics.

`topics.py` calls a broker by `topic_admin.py`, or ZooKeeper by `topics_zookeeper.py`: start there.
"""
