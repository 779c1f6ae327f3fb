from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest

from course import reference
from course.reference import COLUMNS, ResultsError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.csv"


def test_rows_come_back_as_they_were_written(path):
    row = {"name": "a", "status": "measured", "accuracy": 1 / 3, "params": 2_236_682, "weight_bits": "8"}
    reference.put([row], path)
    table = reference.load(path)
    assert list(table.columns) == list(COLUMNS)
    assert (table.accuracy[0], table.params[0], table.weight_bits[0]) == (1 / 3, 2_236_682, "8")
    assert pd.isna(table.coded_bytes[0]) and pd.isna(table.checkpoint[0])
    first = path.read_bytes()
    reference.put([], path)
    assert path.read_bytes() == first
    table = reference.put([{"name": "b"}, {"name": "a", "accuracy": 0.6}], path)  # which keeps what it does not say
    assert list(table.name) == ["a", "b"] and (table.accuracy[0], table.params[0]) == (0.6, 2_236_682)


def test_a_column_that_does_not_exist_and_a_foreign_table_are_refused(path):
    with pytest.raises(ResultsError, match="no column 'speed'"):
        reference.put([{"name": "a", "speed": 1}], path)
    path.write_text("name,accuracy\na,1\n")
    with pytest.raises(ResultsError, match=r"results.csv has other columns"):
        reference.load(path)


def test_those_who_write_at_once_lose_nothing(path):
    with ThreadPoolExecutor(4) as writers:  # each call locks the file anew, as another process would
        list(writers.map(lambda number: reference.put([{"name": f"row{number}"}], path), range(12)))
    assert set(reference.load(path).name) == {f"row{number}" for number in range(12)}


def test_published_numbers_have_a_source_and_its_words():
    table = reference.published()
    assert table.source.str.startswith("https://").all()
    for row in table.itertuples():
        assert f"{row.accuracy:.2%}" in row.stated
        assert 0.85 < row.accuracy < 0.97
    assert len(table[["letter", "label", "source"]].drop_duplicates()) == len(set(table.letter))
