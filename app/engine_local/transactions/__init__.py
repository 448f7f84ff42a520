"""Transactions: who writes in which, how each ends, and the log that remembers it.

``log.state`` says what may happen, ``log.records`` how it is written down, and ``log.state_log`` keeps it in
``__transaction_state``. ``coordinator`` is the door: ``initialiser`` gives an id to a new instance of its producer,
``enlister`` adds partitions, ``endings`` decides and ends with the help of ``markers``, and ``upkeep`` works in the
background. ``attempts`` are decided together, ``pool`` lends producers, and ``hanging`` ends what the coordinator does
not know.
"""
