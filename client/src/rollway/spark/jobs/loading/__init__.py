"""``load``: files into a topic, every row once."""
