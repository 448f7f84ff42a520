"""Errors as problem+json (RFC 9457), and the context of a request.

``kinds`` is the table of all kinds of errors, each a ``kind.Kind``. ``problem`` has the exception that is raised with
one, ``engine`` maps errors of the engine to kinds, and ``framework`` answers the web framework's own errors. Start with
``kinds``. Of the other rooms of ``app`` these modules import only ``paths``.
"""
