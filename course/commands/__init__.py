"""The commands of `python -m course`, one file each: `add_arguments(parser)` and `run(arguments)`."""
