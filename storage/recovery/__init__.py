"""From the files of a partition after a crash to a log that may be served.

``recovery`` decides, ``segment_scan`` finds the good batches of a segment, the other modules mend one kind of damage
each.
"""
