"""Trees of plain values, as in a study's file."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard


def is_tree(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting of a tree with its dotted path."""
    for name, value in tree.items():
        if is_tree(value):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
