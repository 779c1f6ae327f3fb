"""Pruning beside Torch-Pruning (pip install torch-pruning; nothing else here needs it), and beside plain zeros.

python -m course.benchmarks.pruning networks --help     which networks can be pruned, and how quickly
python -m course.benchmarks.pruning quality --help      accuracy at equal multiply-adds and equal fine-tuning
python -m course.benchmarks.pruning unstructured --help zeros instead of missing channels: accuracy, bytes, milliseconds
"""

import sys

from course.benchmarks import pruning_networks, pruning_quality, pruning_unstructured

PARTS = {"networks": pruning_networks.main, "quality": pruning_quality.main, "unstructured": pruning_unstructured.main}


def main() -> None:
    """Hand the rest of the command to the part that is named first."""
    if len(sys.argv) < 2 or sys.argv[1] not in PARTS:
        sys.exit(__doc__)
    PARTS[sys.argv[1]](sys.argv[2:])


if __name__ == "__main__":
    main()
