"""A leader whose topic's tiered storage is turned off, and on again: facts/rules as tests by name.

Method: the bench of copies; the tiering states are written by the test, as the controller would. The
numbers in the names are those of the rules for KIP-950's open questions.
"""
