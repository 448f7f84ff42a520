"""The life of one service: its sockets, opening the logs while health routes answer, serving, stopping cleanly."""
