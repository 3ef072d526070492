"""Pytest fixtures for tests against a real Ottla cluster."""
