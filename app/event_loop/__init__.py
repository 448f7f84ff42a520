"""Work on the event loop and beside it: threads for blocking calls, long lists a piece at a time, bursts spread out."""
