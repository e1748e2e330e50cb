"""The spectrum of ill-conditioned inputs, in plain Python because the theory uses it without torch."""


def two_level_spectrum(dim: int, condition: float) -> tuple[float, ...]:
    """Eigenvalues with trace `dim`. The first floor(dim/2) eigenvalues are `condition` times the others."""
    high, low = dim // 2, dim - dim // 2
    unit = dim / (high * condition + low)
    return (unit * condition,) * high + (unit,) * low
