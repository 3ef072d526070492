"""Requests that a broker passes on to the controller: limits, retries, automatic creation.

Knows requests and the `Forwarder` port; the host owns the connection to the controller.
Start at `forwarded_requests.py`.
"""
