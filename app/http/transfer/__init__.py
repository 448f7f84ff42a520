"""Sends responses into a socket, one after the other: buffers, and slices of files by sendfile."""
