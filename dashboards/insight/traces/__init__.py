"""Recorded traffic: arrivals, hashed prompt blocks, lengths and sessions, never text."""
