"""The command ``rollway-spark``: its arguments, and the start of spark-submit with them."""
