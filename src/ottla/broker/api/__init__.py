"""One file for each API key: its versions, who may call it, where it runs, and its handler.

The directory is the protocol coverage: ApiVersions is computed from it. A handler knows its
`Context` and never waits. Start at `base.py`.
"""
