"""``replay``: a range of time of a topic, produced again at its original speed or another."""
