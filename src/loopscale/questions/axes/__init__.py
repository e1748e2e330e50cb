"""The axes of laws: one file for each axis that is no setting of a study."""
