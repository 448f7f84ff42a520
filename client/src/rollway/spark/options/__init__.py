"""The options of ``format("rollway")``: their names, their values, and errors that suggest the nearest name."""
