"""The reference results: one table of networks, one of what others published, and what README shows of both.

table.py      the columns, reading, and writing that several processes may do at once
measuring.py  what a row says about a saved network
ablations.py  what the ablations say, over their seeds
readme.py     the table and the figure that README shows, and whether they are up to date
"""

from course.results.table import COLUMNS, PUBLISHED, RESULTS, ResultsError, load, published, put
from helpers.plots.tradeoffs import pareto

__all__ = ["COLUMNS", "PUBLISHED", "RESULTS", "ResultsError", "load", "pareto", "published", "put"]
