"""Routes of producers, transactions, load jobs and start positions."""
