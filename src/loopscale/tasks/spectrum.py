"""The spectrum of ill-conditioned inputs. Plain Python: the theory reads it too, without torch."""


def two_level_spectrum(dim: int, condition: float) -> tuple[float, ...]:
    """Eigenvalues with trace `dim`: the first floor(dim/2) of them `condition` times the others."""
    high, low = dim // 2, dim - dim // 2
    unit = dim / (high * condition + low)
    return (unit * condition,) * high + (unit,) * low
