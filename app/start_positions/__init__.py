"""Where groups start to read: the first answer to that question, kept for whoever asks again.

``state`` is what is known, ``records`` how it is written down, ``registry`` pins on the event loop.
"""
