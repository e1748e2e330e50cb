"""Writing records: the MLflow writer, its delivery queue, the driver's lease, and the account of ended runs."""
