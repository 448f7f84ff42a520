"""Routes that produce and fetch records, in all their forms."""
