"""``replay``: a range of time produced again, at its own speed or another."""
