"""The machine of this process: its description for the records, and the resources of a trial."""
