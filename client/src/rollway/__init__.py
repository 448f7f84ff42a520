"""Rollway's library.

``rollway.records`` turns record batches into columns and back. ``rollway.client`` is the service over HTTP, blocking.
``rollway.spark`` is Spark's data source ``format("rollway")``, and the jobs of ``rollway-spark``.
"""
