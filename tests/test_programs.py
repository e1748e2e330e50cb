"""A module that is also a program starts at its last statement: a later function would not exist yet."""

import ast

import pytest

from tests.test_constants import MODULES


def starts(statement: ast.stmt) -> bool:
    """Whether the statement is `if __name__ == "__main__"`."""
    return isinstance(statement, ast.If) and ast.unparse(statement.test) == "__name__ == '__main__'"


PROGRAMS = [name for name, module in MODULES.items() if any(map(starts, module.body))]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_starts_after_all_its_functions(name: str):
    *before, last = MODULES[name].body
    assert starts(last), "a function below `if __name__` does not exist when the program starts"
    assert not any(map(starts, before))


def test_the_programs_of_the_jobs_of_clusters_are_found():
    assert {"loopscale.cluster.job_check", "loopscale.cluster.worker_jobs"} <= set(PROGRAMS)
