"""Load jobs: many writers, some of them tried again, and one decision whose records count.

``state`` says what may happen, and ``records`` how it is written down; ``store`` holds both. ``registry`` is the door
for requests: ``enlisting`` gives producer ids to attempts, ``decisions`` begins, commits and aborts jobs, and
``endings`` carries decisions out. ``progress`` counts what has arrived. The transactions are
``app.engine.transactions.Attempts``.
"""
