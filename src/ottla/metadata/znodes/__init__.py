"""A cluster's facts as znodes, in the paths and the JSON of Kafka 3.9: one file a noun.

`load` turns znodes into records, `write` turns records into znodes; both know of one another only
through `known`, what must be remembered of a znode to write it again.
"""
