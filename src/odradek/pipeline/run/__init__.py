"""Running a pipeline: queries, supervision, progress, dead letters."""
