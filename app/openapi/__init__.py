"""The OpenAPI document: ``python -m app.openapi`` writes it. ``published_document`` is the form that is served."""
