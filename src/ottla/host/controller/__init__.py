"""The active controller's machinery, the same in both modes: decisions, periodic work, brokers.

Knows the deciders of `controller` and its port of a metadata back end; `kraft` and `zookeeper`
implement that. Start at `controller_runtime.py`; `controller_channel.py` sends requests to brokers,
`manager_runner.py` runs the managers of topic deletions (`deletions.py`) and of disabling tiered
storage (`disabling.py`).
"""
