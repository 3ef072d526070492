"""A cluster's facts as znodes, in the paths and the JSON of Kafka 3.9: one file a noun.

`load` turns znodes into records, `write` turns records into znodes; both share only
`known`, the versions and fields that are needed to write a znode again.
"""
