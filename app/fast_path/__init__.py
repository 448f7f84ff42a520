"""Plain requests answered on the connection, without the application: which they are, and their handlers."""
