"""What is wrong with a store, in one line that ends with the remedy."""

import os


class StoreError(Exception):
    """Says what is wrong and what to do about it: `<what>; <remedy>`."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{' '.join(what.split())}; {remedy}")


class NoRecords(StoreError):
    """There is nothing to read, which is nobody's fault: it has not been run, or not here."""


def forbidden(said: str, what: str = "do this") -> str | None:
    """The line for a tracking server's 401 or 403, in the words of whichever of MLflow's callers met it; else None."""
    if "Invalid Host header" in said:
        return None
    if "error code 401" in said:
        return (
            f"the tracking server does not let {who()} in; set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, "
            "or MLFLOW_TRACKING_TOKEN"
        )
    if "error code 403" in said or "PERMISSION_DENIED" in said:
        return (
            f"the tracking server does not let {who()} {what}; ask whoever runs it for EDIT permission to record, "
            "for READ to look"
        )
    return None


def who() -> str:
    """As whom a tracking server is asked, as far as the environment says."""
    name = os.environ.get("MLFLOW_TRACKING_USERNAME")
    return f"the user {name}" if name else "you"
