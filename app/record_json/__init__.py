"""Records as JSON: parsed strictly, encoded to batches and decoded from them, within limits on memory.

``translate`` parses records, ``record_batches`` makes batches of them, ``decoding`` reads batches, and ``record_texts``
writes records as text. ``work_rooms`` limits the memory of all requests together. The members of a record and the
encodings ``utf8``, ``base64`` and ``json`` are decided here.
"""
