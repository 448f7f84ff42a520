"""Rollway beside other logs: each installed if it can be, given the same messages, and measured on the same cores."""
