from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course.publish import page


def test_formulas_become_mathml_and_code_stays_code():
    text = page.markdown("so $a^2$ costs `$5` and\n\n$$ W' = a\\,W $$\n\n```python\nprice = '$x$'\n```")
    assert text.count("<math") == 2 and 'display="block"' in text
    assert "<code>$5</code>" in text
    assert "$x$" in text.replace('<span class="s1">&#39;', "").replace("&#39;</span>", "")


def test_formulas_inside_tables_and_folded_parts():
    text = page.markdown("| a |\n|---|\n| $\\sigma^2$ |\n\n<details><summary>S</summary>\n\n$b_o$\n\n</details>")
    assert text.count("<math") == 2 and "<table>" in text and "<details>" in text and "$" not in text


def test_a_prime_stands_beside_its_letter():
    text = page.markdown("$W' = a\\,W$ and $x'^2$")
    assert "<mi>W</mi><mo" in text and "&#x02032;</mo>" in text


def test_links_stay_inside():
    assert 'href="#02_b"' in page.markdown("[next](02_b.ipynb)", {"02_b.ipynb": "#02_b"})
    assert 'href="https://pytorch.org"' in page.markdown("[torch](https://pytorch.org)", {})


def test_outputs_escape_text_and_leave_widgets_out():
    cell = new_code_cell("x")
    cell.outputs = [
        new_output("stream", name="stdout", text="a < b"),
        new_output("display_data", data={"application/vnd.jupyter.widget-view+json": {}, "text/plain": "bar"}),
        new_output("display_data", data={"text/html": "<table></table>", "text/plain": "t"}),
    ]
    text = page.outputs(cell)
    assert "a &lt; b" in text and "bar" not in text and "<table></table>" in text


def test_title_is_the_first_heading():
    assert page.title_of(new_notebook(cells=[new_markdown_cell("x\n# 01 · T\n# no")])) == "01 · T"
