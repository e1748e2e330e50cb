"""The errors that a person can mend, as one hierarchy below `LoopscaleError`.

The text of each error is what the command line prints: the problem, a semicolon, the remedy. A bug raises any other
exception. An interrupted run raises KeyboardInterrupt.
"""

from loopscale.redaction import redacted


class LoopscaleError(Exception):
    """An error that a person can mend. The text is one line, or one line for each mistake of a file.

    The text holds no password, because errors are printed, recorded and sent.
    """

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(redacted(each) if isinstance(each, str) else each for each in arguments))


class UsageError(LoopscaleError):
    """A mistake in the arguments of a command or a function."""


class StudyError(LoopscaleError):
    """A study, or another file that a person writes, has mistakes."""


class CorpusError(LoopscaleError):
    """The files of a corpus, or the texts for a corpus, cannot be used."""


class StoreError(LoopscaleError):
    """Something is wrong with a store of records."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{' '.join(what.split())}; {remedy}")


class NoRecords(StoreError):
    """The store has no such records: the study has not been run, or was run with another store."""


class QueryError(LoopscaleError, ValueError):
    """A query is wrong."""


class StorageError(LoopscaleError, OSError):
    """The files of checkpoints cannot be read or written."""


class OutputError(LoopscaleError, OSError):
    """Standard output cannot be written: its disk is full, say."""


class ClusterError(LoopscaleError):
    """A cluster cannot do what was asked."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")


class ResourcesError(LoopscaleError):
    """This machine lacks the resources of one trial."""


class HeldError(LoopscaleError):
    """Another driver runs the study."""


class RunError(LoopscaleError):
    """A run has ended early. No record is lost, and the next run goes on."""


class BudgetError(RunError):
    """The budget of the study is spent."""


class FailuresError(RunError):
    """More trials have failed than `stop.failures` of the study allows."""


class CallbackError(RunError):
    """A callback has raised an exception. The exception is the cause."""
