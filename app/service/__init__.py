"""The life of one service: opening an engine while health routes respond, serving, stopping cleanly.

``parts`` builds the objects that routes are given, in their order. ``scheduler`` runs background jobs at their
intervals. ``opening`` is how an engine comes up; without another one it is the local engine.
"""
