"""Record batches before they are in a log: validation, recompression, conversion, and the request to append them.

These checks need no log and no file. ``append_request`` holds the request of an append and its result.
"""
