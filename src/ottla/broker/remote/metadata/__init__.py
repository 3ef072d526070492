"""What is recorded of remote segments: the topic `__remote_log_metadata`, written and read.

Knows the broker's replicas and leaders, not what segments are copied for. Start at
`metadata_topic.py`.
"""
