"""Routes of topics, their retention and their leader epochs."""
