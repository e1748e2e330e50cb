"""Studies in simulated time: learning curves, simulated clusters, and forecasts."""
