"""Transactions: who writes in which, how each ends, and the log that remembers it.

``state`` says what may happen, ``records`` how it is written down, ``state_log`` keeps it in ``__transaction_state``,
``markers`` ends it in the partitions, and ``coordinator`` does all that on the event loop. ``hanging``
ends what the coordinator does not know.
"""
