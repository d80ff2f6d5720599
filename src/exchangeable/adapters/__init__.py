"""Adapters for other libraries. Nothing else in the package imports them, and each needs the extra of the same name."""
