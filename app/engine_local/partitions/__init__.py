"""One partition as requests use it: its writer, and the requests that wait for its appends and its records."""
