"""Runs the notebooks without a screen, and makes the report, slides, demo and website."""
