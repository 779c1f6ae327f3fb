"""Both benchmarks of the graph passes in one run: the time of the pipeline, and the speed of what it makes.

python -m course.benchmarks.passes
"""

from course.benchmarks import passes_inference, passes_pipeline

if __name__ == "__main__":
    passes_pipeline.main()
    passes_inference.main()
