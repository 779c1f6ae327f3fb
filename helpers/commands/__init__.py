"""The commands of `python -m helpers`, one file each: `add_arguments(parser)` and `run(arguments)`."""
