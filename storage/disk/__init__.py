"""Files, directories and their names: the only room that touches the disk.

``file_system`` is the one door, so that tests can put a simulated disk behind it; ``file_lock`` is a part of it. The
other modules are small files with a fixed form: checkpoints, the metadata of a partition, the lock of a data
directory, the gaps that a truncation left. No module here knows segments or logs.
"""
