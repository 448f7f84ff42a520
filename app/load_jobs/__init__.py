"""Load jobs: many writers, some of them repeated, and one decision about the records that count.

``state`` defines the states and transitions, and ``records`` their form in the log; ``store`` holds both. ``registry``
is the entry for requests: ``enlisting`` gives producer ids to attempts, ``decisions`` begins, commits and aborts jobs,
and ``endings`` carries decisions out. ``progress`` counts rows and bytes. The transactions are
``app.engine.transactions.Attempts``.
"""
