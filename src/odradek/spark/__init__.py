"""Topics as Spark DataFrames: `format("odradek")`, a source and a sink that need no connector jar."""
