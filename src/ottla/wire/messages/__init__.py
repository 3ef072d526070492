"""One module for each API of Kafka's protocol, holding its request, its response and their structs.

Classes, structs and fields have the names of Kafka's JSON files, fields in snake case. Where a
request and its response both have a struct of one name but with different fields, the struct's
name begins with `Request` or `Response` here. Fields that some version lacks always have a
default, as have nullable error messages and throttle times; others must be said.

Besides the APIs: `consumer_protocol`, `control_records`, `default_principal_data`.
"""
