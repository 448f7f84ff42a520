"""TLS: contexts, client certificates, and limits on handshakes."""
