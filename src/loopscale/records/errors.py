"""What is wrong with a store, in one line that ends with the remedy."""


class StoreError(Exception):
    """Says what is wrong and what to do about it: `<what>; <remedy>`."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{' '.join(what.split())}; {remedy}")
