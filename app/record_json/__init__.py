"""Records as JSON: parsed strictly, encoded to batches and decoded from them, within limits on memory.

``translate`` parses records, ``record_batches`` makes batches of them, ``decoding`` reads batches, and
``record_documents`` and ``record_texts`` write records as text. ``work_rooms`` limits the memory that all requests
together take for this work. The members of a record and the encodings ``utf8``, ``base64`` and ``json`` are decided
here.
"""
