"""Errors of a store, as one line that ends with the remedy."""

import os


class StoreError(Exception):
    """Something is wrong with a store. The text is `<what is wrong>; <remedy>`."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{' '.join(what.split())}; {remedy}")


class NoRecords(StoreError):
    """The store has no such records: the study has not been run, or was run with another store."""


def explain_denial(message: str, action: str = "do this") -> str | None:
    """Turn a tracking server's 401 or 403 into one line; None for any other message.

    `message` is the text of the error, which differs among MLflow's functions.
    """
    if "Invalid Host header" in message:
        return None
    if "error code 401" in message:
        return (
            f"the tracking server does not let {user_name()} in; set MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        )
    if "error code 403" in message or "PERMISSION_DENIED" in message:
        return (
            f"the tracking server does not let {user_name()} {action}; ask whoever runs it for EDIT permission to "
            "record, for READ to look"
        )
    return None


def user_name() -> str:
    """The user that the tracking server sees, as far as the environment tells."""
    name = os.environ.get("MLFLOW_TRACKING_USERNAME")
    return f"the user {name}" if name else "you"
