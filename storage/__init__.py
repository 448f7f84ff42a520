"""The log engine: partitioned, segmented commit logs on local disk, byte-compatible with Kafka's.

The engine is synchronous, has one writer per partition, and imports neither HTTP nor asyncio nor pydantic; ``app``
calls it. Its rooms, from high to low: ``manager`` · ``recovery`` · ``log`` · ``producers`` · ``segment`` · ``index`` ·
``disk``. A room imports only lower rooms. ``log_inspection`` stands beside them: it checks the files with its own
parsers. ``log_model`` has the errors, the topic settings and the checks of batches. Start with
``log/log_snapshot.py``.
"""
