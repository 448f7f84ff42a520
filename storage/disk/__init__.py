"""Files, directories and their names: the only room that touches the disk.

``file_system`` is the one door to the disk, so tests can put a simulated disk behind it. ``file_lock`` is part of it.
The other modules read and write small files of a fixed form: checkpoints, partition metadata, the lock of a data
directory, the list of gaps that truncations left. No module here imports segments or logs.
"""
