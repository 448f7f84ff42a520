"""Writing DataFrames to topics: one load job for each write, whose tasks send in parallel."""
