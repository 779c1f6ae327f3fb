"""What runs in the box. The folder is copied there, and imports nothing of the grader but `wire`,
`guard` and the driver, which lie beside the folder.
"""
