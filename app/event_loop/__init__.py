"""Work on the event loop and beside it.

Blocking calls run in threads, long lists are handled a piece at a time, and bursts are spread over several iterations.
"""
