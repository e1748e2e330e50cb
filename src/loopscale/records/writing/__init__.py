"""Writing records: the MLflow writer, the driver's lease, and the account of ended runs."""
