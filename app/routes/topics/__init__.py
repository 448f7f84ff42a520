"""Routes for topics, their retention and their leader epochs."""
