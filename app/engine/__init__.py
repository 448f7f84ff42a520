"""The port between HTTP and an engine: protocols, values and errors that every engine shares."""
