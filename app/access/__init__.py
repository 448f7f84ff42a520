"""Authentication and authorisation: API keys, tokens, JWTs, client certificates, and access rules.

``authentication`` finds the principal of a request. ``needs`` declares the rights of a route beside it, and
``access.Access`` checks them. ``registry`` keeps keys, tokens and rules in files.
"""
