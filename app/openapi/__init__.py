"""The OpenAPI document: ``document`` makes the whole document, ``published_document`` the served form of it."""
