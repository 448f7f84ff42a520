"""Commands for topics, access, transactions, load jobs and start positions."""
