"""Which keys a head of relu attention hears, and products within a token by means of that.

A relu passes nothing of a score that is far below 0, so adding 0 for the keys that are meant and -bound for all
others chooses keys, and leaves the score of those chosen as it is. Rounding is that of numbers as large as the bound.
"""

import math
from collections.abc import Iterable

from loopscale.theory.constructions.plan import Form, Plan, Term


def alike(one: Form, bound: float, *matches: Term) -> list[Term]:
    """Terms of a score that are 0 where every match is 1, and at most -bound where any is 0.

    A match is an inner product that is 1 or 0, such as that of two one-hot codes. With a token's own identity a
    token hears itself alone, and where it has none (all zeros) it hears nobody. `bound` is at least the largest
    score, of any two tokens, that is to be silenced. It is rounded up to a power of 2: a score of 1 then stays exact.
    """
    far = 2.0 ** math.ceil(math.log2(bound))
    return [*((far * query, key) for query, key in matches), (-far * len(matches) * one, one)]


def newton(
    plan: Plan, product: Term, target: Form, weight: float, flag: Term, gate: Iterable[Term] = ()
) -> Plan:
    """Heads that add weight · (1 - product) · target to the target, at the tokens where the flag is 1.

    With n r and weight 1 that is Newton's step for r = 1/n, and e = 1 - n r becomes e²; with v·v and weight 1/2 it is
    one towards |v| = 1, where e = |v| - 1 becomes 3/2 e².
    """
    gate = list(gate)
    plan.pair([product], [(-weight * target, target)], gate)
    return plan.head([flag, *gate], [(weight * target, target)])
