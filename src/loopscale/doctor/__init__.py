"""The doctor of a store: small checks that find damage, and repairs that mend the damage."""
