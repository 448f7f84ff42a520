"""``compare``: two topics, or a topic and files, by counts and digests."""
