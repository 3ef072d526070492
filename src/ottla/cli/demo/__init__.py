"""`ottla demo`: a real cluster, real records, clients and Spark; every result is compared.

Start at `story.py`: the order of the steps. It uses the product through its clients and commands.
"""
