"""Graphs of networks: how they are recorded, read, searched, changed and drawn. Passes build on it."""
