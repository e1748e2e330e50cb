"""What trials cost: their speed on a machine, and the number of steps that a budget of FLOPs or seconds pays."""
