"""The log engine: partitioned, segmented commit logs on local disk, byte-compatible with Kafka's.

Synchronous and single-writer per partition. Knows no HTTP, no asyncio and no pydantic; ``app`` calls it.
The floors, high to low: ``log_manager`` · ``recovery`` · ``partition_log`` · ``retention`` ·
``log_snapshot`` · ``segment`` · indexes, producer state, epochs, checkpoints · ``file_system`` ·
``file_names``, ``clock`` · ``config`` · ``errors`` · ``offsets``. A module imports only lower floors.
"""
