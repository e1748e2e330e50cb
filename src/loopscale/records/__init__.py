"""Everything that a trial leaves behind. Only this package writes to MLflow and reads from MLflow.

MLflow is the only record: a study's whole state is in the tags and the last metrics of its runs. Only the driver
writes, from one thread in the background, so that training never waits for MLflow (`writing.mlflow_writer`). Queries
are answered from a Parquet mirror, without MLflow (`mirror`).
"""
