"""Authentication and authorisation: API keys, tokens, JWTs, client certificates, and access rules."""
