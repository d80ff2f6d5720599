"""Events: one observation or label in one line of JSON, CSV or TSV, and the schema that all of them follow."""
