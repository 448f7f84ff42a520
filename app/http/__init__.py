"""HTTP below the application: connections, bodies, files, TLS, content negotiation."""
