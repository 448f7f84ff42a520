"""Start positions of groups: the first response to a group's request, kept for its later requests.

``state`` holds the positions, ``records`` writes them down, and ``registry`` pins them on the event loop.
"""
