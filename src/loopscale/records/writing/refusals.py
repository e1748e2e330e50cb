"""Which of MLflow's errors mean that asking again would change nothing."""

import contextlib
from collections.abc import Iterator

from loopscale.records.model.errors import forbidden
from loopscale.records.writing.delivery import Denied, Refused


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Tell what the store has understood and refused from what may work another time."""
    from mlflow.exceptions import MlflowException
    from requests import HTTPError
    from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError

    refused, denied = (400, 404, 409, 413, 422), (401, 403)
    try:
        yield
    except MlflowException as problem:
        # MLflow calls whatever its database says a bad request, a connection that was cut too
        cause = problem.__cause__
        transient = isinstance(cause, SQLAlchemyError) and not isinstance(cause, DataError | IntegrityError)
        if said := forbidden(problem.message, "record"):
            raise Denied(said) from problem
        if transient or problem.get_http_status_code() not in refused:
            raise
        raise Refused(problem.message) from problem
    except HTTPError as problem:
        if problem.response is not None and problem.response.status_code in denied:
            said = forbidden(f"error code {problem.response.status_code}", "record") or str(problem)
            raise Denied(said) from problem
        if problem.response is None or problem.response.status_code not in refused:
            raise
        raise Refused(str(problem)) from problem
