"""Quotas: how fast a principal or a client may produce, fetch and ask (spec A3, D4)."""
