"""Files as rows of a DataFrame, and as records read without Spark's parsers."""
