"""The monitoring server: streams over HTTP, a live page, nothing lost."""
