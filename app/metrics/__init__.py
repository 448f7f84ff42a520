"""Counters and gauges for Prometheus. ``metrics`` has every metric of the service by name."""
