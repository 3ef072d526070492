"""A node's sockets, threads and clocks, and the assembly of its roles: the only asyncio.

May know every package below; decides nothing about data. Start at `node_core.py`, then `node.py`;
`net` has the connections, `log_dirs` the disk, `controller` the active controller of both modes,
`kraft` and `zookeeper` what differs between them.
"""
