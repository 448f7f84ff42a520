"""Transactions as states, as records, and as the log ``__transaction_state`` that keeps them."""
