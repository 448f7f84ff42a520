"""Record batches that no log has yet: validated, recompressed, converted, and asked to be appended.

These checks need no log and no file. ``append_request`` holds the request of an append and its result.
"""
