"""Hyperband [@li2018]: asha with several first rungs."""

import math

from loopscale.studies.schedulers.asha import Asha


class Hyperband(Asha, kind="hyperband"):
    """Later brackets begin to compare later. A trial's bracket is its number modulo the number of brackets."""

    def bracket(self, number: int, steps: int) -> int:
        depth = math.log(max(steps - 1, 1) / self.first_rung, self.reduction)
        return number % (1 + max(0, math.floor(depth + 1e-9)))
