"""Routes that produce and fetch records, in all media types."""
