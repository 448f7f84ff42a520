"""Start positions: the offsets at which a group of readers begins, fixed by the group's first request.

``state`` holds the positions, ``records`` encodes them for their log, and ``registry`` fixes the positions of a group
and looks them up.
"""
