"""Files, directories and their names: the only room that touches the disk.

All access to the disk goes through ``file_system``, so tests can put a simulated disk in its place. ``file_lock`` has
the system calls for locks that ``file_system`` uses. The other modules read and write small files of a fixed form:
checkpoints, partition metadata, the lock of a data directory, the list of gaps between segments that truncations made.
No module here imports segments or logs.
"""
