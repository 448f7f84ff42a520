"""Quotas: the rates at which a principal or a client may produce, fetch and send requests.

``limits`` has the kinds of quotas, and finds the quota of a client. ``sampled_rate`` measures a rate. ``throttling``
charges a request and tells its client how long to wait. ``store`` keeps the quotas in a file.
"""
