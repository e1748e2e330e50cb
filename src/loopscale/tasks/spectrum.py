"""The spectrum of ill-conditioned inputs, in plain Python because the theory uses it without torch."""


def level_spectrum(dim: int, condition: float, levels: int = 2) -> tuple[float, ...]:
    """Eigenvalues with trace `dim` and as many different values as `levels`, largest first.

    The values fall by equal factors, and the first value is `condition` times the last one. Each value occurs
    floor(dim / levels) times. The remainder goes to the smallest values, one to each.
    """
    least, more = divmod(dim, levels)
    counts = [least + (level >= levels - more) for level in range(levels)]
    ratios = [condition ** ((levels - 1 - level) / (levels - 1)) for level in range(levels)]
    unit = dim / sum(count * ratio for count, ratio in zip(counts, ratios, strict=True))
    return tuple(unit * ratio for count, ratio in zip(counts, ratios, strict=True) for _ in range(count))
