"""Transactions: their producers and partitions, their ends, and the log that remembers them.

``log.state`` defines states and transitions, ``log.records`` their form in the log, and ``log.state_log`` keeps them in
``__transaction_state``. ``coordinator`` is the entry: ``initialiser`` gives an id to a new instance of its producer,
``enlister`` adds partitions, ``endings`` decides and ends with the help of ``markers``, and ``upkeep`` works in the
background. ``attempts`` are decided together, ``pool`` lends producers, and ``hanging`` ends transactions that the
coordinator does not know.
"""
