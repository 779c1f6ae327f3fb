import os
import pickle
from unittest.mock import Mock

import numpy as np
import pytest

from helpers.data_formats import fingerprint, read, write_npz
from helpers.dataset import DataError
from tests.cifar_fixtures import FORMS, Boom, python_members, tiny_arrays, write_folder


@pytest.mark.parametrize("field", range(4))
def test_one_changed_byte_changes_the_fingerprint(field):
    arrays = tiny_arrays()
    before = fingerprint(arrays)
    arrays[field].flat[0] ^= 1
    assert fingerprint(arrays) != before


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_truncated_copy_is_named(form, share, tmp_path):
    path = FORMS[form](tiny_arrays(), tmp_path)
    torn = path / "data_batch_3" if path.is_dir() else path
    os.truncate(torn, int(torn.stat().st_size * share))
    with pytest.raises(DataError, match=rf"{form}.*(damaged|truncated)"):
        read(path)


MEMBERS = python_members(tiny_arrays())
FOLDERS = {
    r"damaged.*test_batch": {
        name: content for name, content in MEMBERS.items() if name != "test_batch"
    },
    r"wrong.*holiday\.jpg.*expected data_batch": {"holiday.jpg": b"", "notes.txt": b""},
    "no image batch needs": MEMBERS | {"data_batch_1": pickle.dumps(Boom(), protocol=2)},
}


@pytest.mark.parametrize("message", FOLDERS)
def test_what_is_wrong_with_a_folder_is_named_and_a_hostile_pickle_runs_nothing(
    message, tmp_path, capsys
):
    folder = write_folder(FOLDERS[message], tmp_path / "wrong")
    with pytest.raises(DataError, match=message):
        read(folder)
    assert "the pickle ran" not in capsys.readouterr().out


def test_no_space_names_the_file_and_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(np, "savez", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(DataError, match=r"cifar10\.npz.*No space.*CIFAR10_DIR"):
        write_npz(tiny_arrays(), tmp_path / "cifar10.npz")
    assert list(tmp_path.iterdir()) == []
