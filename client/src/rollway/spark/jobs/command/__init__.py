"""The command ``rollway-spark``: its arguments, and how spark-submit is started with them."""
