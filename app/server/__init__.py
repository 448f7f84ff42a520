"""One run of the service: its sockets, its log output, and its exit status."""
