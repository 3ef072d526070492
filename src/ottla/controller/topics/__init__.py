"""Topics: their creation, their partitions and where these go, their configurations.

Their deletion is `ottla.controller.deletion`.
"""
