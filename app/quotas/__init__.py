"""Quotas: the rates at which a principal or a client may produce, fetch and send requests (spec A3, D4).

``limits`` has the kinds of quotas and which of them holds for a client, ``sampled_rate`` measures, ``throttling``
charges and mutes, and ``store`` keeps them in a file.
"""
