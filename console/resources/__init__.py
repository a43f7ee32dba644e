"""Kinds of rows: pages and REST of each are derived from its model and one declaration."""
