"""How data comes in: tables in memory, files, and lines of JSON or CSV."""
