"""Producer state: the last sequences of each producer, its open transactions, and their snapshots on disk.

The state recognises a repeated request and refuses a gap. ``producer_snapshot`` keeps it in files beside the segments.
``producer_replay`` rebuilds it from the newest snapshot and the batches after it.
"""
