"""Fetch requests: records of one or many partitions, sessions, offsets by time, and splits.

A split is a range of offsets that one of several readers takes. Everything here reads through the port. Routes get a
``fetching.Fetching``. ``fetched_records`` decodes batches to records for JSON and lines. ``message_sets`` converts
batches for clients of the old formats. ``fetch_headers`` makes the headers of a response: limits, ETag, caching.
``multi_fetch`` and ``fetch_sessions`` serve many partitions in one request.
"""
