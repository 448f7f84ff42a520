"""Fetch requests: records of one or many partitions, sessions, offsets by time, and splits.

A split is a range of offsets that one of several readers takes. Everything here reads through the port. Routes get a
``fetching.Fetching``. ``fetched_records`` makes records of a read for JSON and lines, ``message_sets`` for old
clients, ``fetch_headers`` the limits, ETags and caching of a response. ``multi_fetch`` and ``fetch_sessions`` serve
many partitions in one request.
"""
