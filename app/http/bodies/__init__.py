"""Request bodies and long responses, counted against the memory they may use."""
