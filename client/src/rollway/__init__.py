"""Rollway's library. ``rollway.records`` turns record batches into columns and back."""
