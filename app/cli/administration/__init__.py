"""Commands about topics, access, transactions, load jobs and start positions."""
