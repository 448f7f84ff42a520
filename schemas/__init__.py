"""Pydantic models of the HTTP interface: bodies, answers and parameters, with the text that users read of them."""
