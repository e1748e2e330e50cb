"""The checks of the doctor. Each module has one check, a subclass of `Check`."""
