"""Counters and gauges for Prometheus."""
