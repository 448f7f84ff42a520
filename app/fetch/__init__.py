"""Fetch requests: records of one or many partitions, sessions, offsets by time, and splits; through the port alone.

``fetching`` is given to routes. ``fetched_records`` makes records of a read for JSON and lines, ``message_sets`` for
old clients, ``fetch_headers`` the limits, ETags and caching of a response. ``multi_fetch`` and ``fetch_sessions`` serve
many partitions in one request.
"""
