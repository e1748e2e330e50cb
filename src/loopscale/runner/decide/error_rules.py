"""The user's rules for errors (`on_error`), and the hosts on which trials fail. Only a failure enters this module."""

from collections.abc import Mapping, Sequence

from loopscale.notation.patterns import occurs
from loopscale.studies.schema import ErrorAction

SEARCHED = 4000
"""Characters at the end of a reason that are searched: the end of a traceback names the error."""
MOST_HOST_FAILURES = 5
"""Failures in a row on one host after which the host gets no more trials, if another host has finished one."""


def action_on(reason: str, rules: Mapping[str, ErrorAction]) -> ErrorAction | None:
    """The action of the first rule whose pattern occurs in the reason; None without such a rule."""
    text = reason[-SEARCHED:]
    return next((action for pattern, action in rules.items() if occurs(pattern, text)), None)


def is_at_fault(host: str, ends: Mapping[str, Sequence[bool]]) -> bool:
    """True if the last trials on a host have failed, many in a row, and another host has finished a trial.

    Parameters
    ----------
    ends
        The ends of trials on each host in their order: True for a finished trial, False for a failure.
    """
    latest = ends[host][-MOST_HOST_FAILURES:]
    another_finished = any(True in of_host for other, of_host in ends.items() if other != host)
    return len(latest) == MOST_HOST_FAILURES and not any(latest) and another_finished
