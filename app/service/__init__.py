"""The life of one service: it opens an engine, serves, and stops. Its health routes respond from the beginning.

``parts`` builds the objects that routes work with. ``scheduler`` runs background jobs at their intervals. ``opening``
has the protocol by which an engine is opened; a service opens the local engine unless it is given another opening.
"""
