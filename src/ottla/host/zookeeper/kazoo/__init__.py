"""The `Session` of `base/zookeeper.py` on the client library kazoo.

Nothing else imports the library. Start at `kazoo_session.py`.
"""
