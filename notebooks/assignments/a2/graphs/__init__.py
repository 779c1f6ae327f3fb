"""The graphs of a2, by exercise; secret. One small function makes one graph."""
