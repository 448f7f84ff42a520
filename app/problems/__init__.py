"""Errors as problem+json (RFC 9457): the framework's, the engine's and our own, and the context of a request."""
