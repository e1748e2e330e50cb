"""What trials leave behind: written to MLflow and read from it here alone, so that the names agree.

MLflow is the only record. Everything that a study needs to go on is a tag or a last metric of its runs, so
that one paged search brings back the whole state. Only the driver writes, from one thread, and nobody waits
for it. Questions about what has been recorded are answered from a Parquet mirror, without MLflow.
"""
