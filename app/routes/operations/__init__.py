"""Routes for operators: health, metrics, the OpenAPI document, keys, tokens, access control lists and quotas."""
