"""Recovery: it makes a log that may be served from the files that a crash left.

``recovery`` takes the steps. ``segment_recovery`` decides where each segment ends, and what is damage; ``segment_scan``
finds the good batches of a segment. Each of the other modules repairs one kind of damage.
"""
