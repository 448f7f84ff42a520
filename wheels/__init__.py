"""Builds the wheels and sdists of a release: ``python -m wheels``, which is ``make wheels``."""
