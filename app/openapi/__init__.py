"""The OpenAPI document: ``document`` makes the whole one, ``published_document`` the form that is served."""
