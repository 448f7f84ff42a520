"""Reading topics as DataFrames: batches and streams, planned on the driver, fetched in the tasks."""
