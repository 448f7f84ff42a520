"""Errors as problem+json (RFC 9457), and the context of a request.

``kinds`` is the table of all kinds of errors, each a ``kind.Kind``. ``problem`` has the exception ``Problem``, which
is raised with a kind. ``engine`` maps errors of the engine to kinds, and ``framework`` answers errors of the web
framework. Start with ``kinds``.
"""
