"""What happened in a simulated cluster, as plain values: the only input of checkers.

Knows neither the simulator nor the product's state. Start at `history.py`.
"""
