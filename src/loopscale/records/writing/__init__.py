"""Writing records: notes become MLflow runs."""
