"""Generates a client with each generator that teams use, compiles it, and runs a program of it against a service."""
