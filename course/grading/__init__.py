"""Assignments whose marks mean something: student code computes in a box, a trusted process judges
outside.
"""
