"""Shared code of the course: small modules, one concept each, imported by every notebook."""
