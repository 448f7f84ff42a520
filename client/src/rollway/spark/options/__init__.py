"""The options of ``format("rollway")``: their names, their values, and errors that name the nearest one."""
