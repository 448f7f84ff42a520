"""The service: Kafka's log over HTTP.

A request comes in through ``http``, is answered by ``fast_path`` or by a route in ``routes``, and reaches the records
through ``produce`` or ``fetch``. Those speak to ``engine``, the port; ``engine_local`` implements it over ``storage``.
``service`` builds and opens all of it, ``server`` runs it, ``cli`` is the command. ARCHITECTURE.md has the map.
"""
