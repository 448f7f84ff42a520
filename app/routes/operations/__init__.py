"""Routes for operators: health, metrics, the OpenAPI document, keys, access rules, quotas."""
