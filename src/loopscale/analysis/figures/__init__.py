"""Figures of a study in plotly. Cells keep their colour and marker from figure to figure."""
