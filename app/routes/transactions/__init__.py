"""Routes for producers, transactions, load jobs and start positions."""
