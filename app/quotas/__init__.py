"""Quotas: the rates at which a principal or a client may produce, fetch and send requests (spec A3, D4)."""
