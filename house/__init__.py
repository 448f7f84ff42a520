"""The house numbers: how the code is laid out, measured, and held to limits that only fall.

``python -m house`` prints them. ``sources`` reads the tree, ``imports`` its imports. ``modules``, ``sizes``,
``statements`` and ``walks`` measure, ``limits`` compares the numbers with ``limits.toml``, and ``page`` shows them.
``private_reads`` finds the private names that compiled code takes from others.
A tool for developers: the standard library only, imported by tests only.
"""
