"""The HTTP interface: a route parses its request, calls the room that does the work, and returns its document.

Query parameters, headers and media types are declared here, with the text that users read in the OpenAPI document; the
models of bodies are in ``schemas``. ``records`` produces and fetches, ``topics`` has topics, retention and epochs,
``transactions`` also has load jobs and start positions, ``operations`` serves operators. ``dependencies`` gives a route
its parts.
"""
