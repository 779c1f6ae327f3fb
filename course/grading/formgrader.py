"""Show what students wrote in nbgrader's Formgrader without running what is in it.

The Formgrader renders Markdown with its HTML as it stands, on a page of the teacher's own JupyterLab, from which a
script could change every mark. The class folder's nbgrader_config.py puts this in front of it. Formulas then need no
script from elsewhere either.
"""

from __future__ import annotations

from nbconvert.preprocessors import Preprocessor

from course.grading import page


class SafeMarkdown(Preprocessor):
    """Turn Markdown cells into HTML in which nothing can run."""

    def preprocess_cell(self, cell, resources, index):
        """Render one cell."""
        if cell.cell_type == "markdown":
            # One block on one line passes through the Formgrader's own Markdown untouched.
            cell.source = f"<div>{page.markdown(cell.source).replace(chr(10), '&#10;')}</div>"
        return cell, resources
