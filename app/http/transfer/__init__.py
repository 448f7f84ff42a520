"""Responses on their way into a socket: buffers, slices of files by sendfile, one transfer after the other."""
