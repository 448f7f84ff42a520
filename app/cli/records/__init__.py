"""Commands that produce and fetch records."""
