"""Load jobs: bulk loads of many tasks, of which some run twice, and one decision that commits one attempt of each
task.

``state`` defines the states and transitions, and ``records`` their form in the log; ``store`` holds both. ``registry``
is the entry for requests: ``enlisting`` gives producer ids to attempts, ``decisions`` begins, commits and aborts jobs,
and ``endings`` carries decisions out. ``progress`` counts rows and bytes. Each attempt of a task is one transaction;
``app.engine.transactions.Attempts`` ends them.
"""
