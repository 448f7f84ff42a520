"""The HTTP interface: a route parses its request, calls the room that does the work, and returns its document."""
