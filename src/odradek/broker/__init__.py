"""The composition root: builds the parts of a broker, owns every task."""
