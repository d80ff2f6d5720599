"""Read data: tables in memory, files, and lines of JSON or CSV."""
