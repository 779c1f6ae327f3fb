import pytest
import torch

from course.reference import measuring
from helpers import metrics, models, quantization


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A narrow network, in float and in two kinds of int8."""
    folder = tmp_path_factory.mktemp("files")
    torch.manual_seed(0)
    model = models.mobilenet_v2(width_mult=0.1).eval()
    images = torch.randn(32, 3, 32, 32)
    recipes = {"plain": quantization.Recipe(), "mixed": quantization.Recipe(layer_bits={"classifier.1": 4})}
    paths = {"float": models.save(model, folder / "float", provenance={"seed": 3, "command": "train it"})}
    for name, recipe in recipes.items():
        paths[name] = models.save(quantization.quantize(model, images, recipe), folder / name)
    return model, paths


def test_a_quantized_file_tells_the_parameters_and_operations_that_it_came_from(files):
    model, paths = files
    expected = metrics.profile(model, torch.zeros(1, 3, 32, 32))
    for path in paths.values():
        found = measuring.derived(path)
        assert (found["params"], found["macs"]) == (expected.params, expected.macs)
        assert found["file_bytes"] == path.stat().st_size


def test_bits_and_entropy_coded_bytes(files):
    found = {name: measuring.derived(path) for name, path in files[1].items()}
    assert {name: row["weight_bits"] for name, row in found.items()} == {"float": "32", "plain": "8", "mixed": "mixed"}
    assert found["float"]["coded_bytes"] is None
    assert 0 < found["plain"]["coded_bytes"] < found["plain"]["file_bytes"]
