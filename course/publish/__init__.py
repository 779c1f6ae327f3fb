"""Runs the notebooks without a screen, and makes a page and slides of them."""
