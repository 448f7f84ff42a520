"""Recovery: it repairs the files that a crash left, so that their log may be served.

``recovery`` takes the steps. ``segment_recovery`` decides where each segment ends, and what is damage; ``segment_scan``
finds the good batches of a segment. Each of the other modules repairs one kind of damage.
"""
