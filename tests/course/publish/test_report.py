import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course.publish import report

PIXEL = "iVBORw0KGgo="


def test_contents_figures_links_and_provenance(tmp_path):
    code = new_code_cell("draw()")
    shown = {"text/html": f'<img src="data:image/png;base64,{PIXEL}" alt="a dot">', "text/plain": "a dot"}
    code.outputs = [new_output("display_data", data=shown, metadata={"figure": "01-dot"})]
    for name, body in (("01_a", [code]), ("02_b", [])):
        cells = [new_markdown_cell(f"# Lesson {name}\n\n[back](01_a.ipynb)"), *body]
        nbformat.write(new_notebook(cells=cells), tmp_path / f"{name}.ipynb")
    notebooks = [tmp_path / "01_a.ipynb", tmp_path / "02_b.ipynb"]
    text = report.write_report(notebooks, tmp_path / "out" / "report.html", "quick").read_text()
    assert '<a href="#02_b">Lesson 02_b</a>' in text and 'href="#01_a"' in text and ".ipynb" not in text
    assert '<img id="01-dot" src="data:image/png' in text and '<a href="#01-dot">' in text
    assert "<details><summary>code</summary>" in text and "<th>torch</th>" in text and "<td>quick</td>" in text
    assert (tmp_path / "out" / "figures" / "01-dot.png").read_bytes() == b"\x89PNG\r\n\x1a\n"
