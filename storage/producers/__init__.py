"""Producer state: the last sequences of each producer, its open transactions, and their snapshots on disk.

By this state a log recognises a batch that comes again, and refuses one whose sequence leaves a gap.
``producer_snapshot`` keeps it in files beside the segments. ``producer_replay`` rebuilds it from the newest snapshot
and the batches after it.
"""
