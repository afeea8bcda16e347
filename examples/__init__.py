"""Code to start from; nothing in the project imports it."""
