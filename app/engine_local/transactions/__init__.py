"""Transactions: their producers and partitions, their ends, and the log that remembers them.

``log.state`` defines states and transitions, ``log.records`` their form in the log, and ``log.state_log`` keeps them
in ``__transaction_state``. ``coordinator`` is the entry. ``initialiser`` gives a producer its id and shuts out older
instances. ``enlister`` adds partitions to a transaction. ``endings`` commits and aborts, and ``markers`` writes that
into the partitions. ``upkeep`` aborts transactions that are older than their timeout, and forgets idle producers.
``attempts`` has the transactions of load jobs, which are committed together. ``pool`` keeps producers for requests
with ``atomic=true``. ``hanging`` aborts transactions that are open in a partition and unknown to the coordinator.
"""
