"""The engine over ``storage``: partitions with their writers and waiters, transactions, and background work."""
