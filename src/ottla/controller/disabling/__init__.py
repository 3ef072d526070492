"""Tiered storage of topics is disabled: brokers acknowledge, then the topic is DISABLED.

Start at `acknowledgements.py` for who has to acknowledge, then `disabling_manager.py`.
"""
