"""Recovery: from the files of a partition after a crash to a log that may be served.

``recovery`` takes the steps. ``segment_recovery`` decides where each segment ends, and what is damage; ``segment_scan``
finds the good batches of a segment. Each of the other modules repairs one kind of damage.
"""
