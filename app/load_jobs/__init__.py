"""Load jobs: many writers, some of them tried again, and one decision whose records count.

``state`` says what may happen, ``records`` how it is written down, ``registry`` does it on the event loop, and
``progress`` counts what has arrived. The transactions below are ``app.engine.transactions.Attempts``.
"""
