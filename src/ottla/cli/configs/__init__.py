"""`ottla configs`: shows and changes configurations, by a broker or in ZooKeeper.

Start at `configs.py`.
"""
