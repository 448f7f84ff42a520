"""``export``: a topic into Parquet files, each record once."""
