"""What runs around the lessons: commands, publishing, reference results, grading, benchmarks."""
