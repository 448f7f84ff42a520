"""Load jobs: bulk loads by many tasks.

A task may run more than once; each run is an *attempt*. One decision commits a single attempt of each task.

``state`` defines the states of a job and its transitions. ``records`` encodes jobs for the log ``__load_jobs``.
``store`` holds all jobs in memory and writes their changes to that log. ``registry`` is the entry for requests.
``enlisting`` makes an attempt part of a job and gives it a producer id. ``decisions`` begins, commits and aborts jobs,
and ``endings`` carries decisions out. ``progress`` counts rows and bytes. Each attempt of a task is one transaction;
``app.engine.transactions.Attempts`` ends them.
"""
