"""HTTP below the application: connections, bodies, files, TLS, content negotiation.

``connection`` reads requests with limits on their size and time, ``bodies`` counts memory, ``transfer`` sends files and
buffers, ``tls`` limits handshakes. ``compression`` and ``negotiation`` serve all routes.
"""
