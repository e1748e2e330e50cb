"""The forms of a law, one file each."""
