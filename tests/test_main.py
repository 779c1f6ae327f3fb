import pytest

from course.__main__ import COMMANDS, main


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    assert "show this help message" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["fly"], ["data", "--source", "moon"], ["train", "--epochs", "many"]])
def test_wrong_words_exit_with_two_and_one_clear_line(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert "error:" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    "words",
    [
        ("quantize", "net.safetensors", "int8.safetensors", "--entropy", "net.safetensors"),
        ("quantize", "net.safetensors", "int8.safetensors", "--onnx", "./int8.safetensors"),
        ("finetune", "net.safetensors", "--output", "net.safetensors", "--log", "net.safetensors"),
        ("train", "--output", "net.safetensors", "--state", "net.safetensors"),
    ],
)
def test_no_file_is_named_for_two_things(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.safetensors").write_bytes(b"the only copy")
    assert main(list(words)) == 1
    assert "are one file" in capsys.readouterr().err
    assert (tmp_path / "net.safetensors").read_bytes() == b"the only copy"
