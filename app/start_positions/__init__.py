"""Start positions: the offsets at which a group of readers begins, fixed by the group's first request.

``state`` holds the positions, ``records`` writes them down, and ``registry`` pins them on the event loop.
"""
