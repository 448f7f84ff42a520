"""Records as JSON: parsed strictly, encoded to batches and decoded from them, within limits on memory."""
