"""Commands that read a data directory without a server."""
