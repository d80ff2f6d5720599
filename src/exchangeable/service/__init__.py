"""The monitoring server: streams over HTTP, durable state and a live web page."""
