"""A sweep over a narrow network, on the committed sample."""

from course import reference
from course.reference import read
from course.reference.keys import key_of
from course.reference.measuring import weights_of
from helpers import models

TEXT = """
data = "sample"
results = "{folder}/results.csv"
checkpoints = "{folder}/shipped"
work = "{folder}/work"

[defaults.fine-tuned]
epochs = 2
image_sizes = [8]
batch_size = 300
distill = 0.5

[defaults.qat]
distill = 0.5
epochs = 1
image_sizes = [32]

[jobs]
dense    = {{stage = "dense", epochs = 1, image_sizes = [8], ship = true}}
cut      = {{stage = "pruned", from = "dense", target_params = 0.7}}
tuned    = {{stage = "fine-tuned", from = "cut", teacher = "dense", ship = true}}
int8     = {{stage = "int8", from = "dense", ship = true}}
tiny     = {{stage = "qat", from = "dense", file_bytes = {bytes}}}
"""


def small_sweep(folder, file_bytes=140_000):
    """The sweep above, with its baseline (random weights) in place."""
    path = folder / "small.toml"
    path.write_text(TEXT.format(folder=folder.as_posix(), bytes=file_bytes))
    sweep = read(str(path))
    models.save(models.mobilenet_v2(width_mult=0.1).eval(), sweep.network(sweep.jobs["dense"]))
    return sweep


def rows_of(sweep, *names):
    """A table in which these jobs are done."""
    for name in names:
        job = sweep.jobs[name]
        key = key_of(job, sweep, reference.load(sweep.results))
        row = {"name": name, "status": "measured", "key": key, "weights": f"weights of {name}"}
        if sweep.network(job).exists():
            row["weights"] = weights_of(sweep.network(job))
        reference.put([row], sweep.results)
    return reference.load(sweep.results)
