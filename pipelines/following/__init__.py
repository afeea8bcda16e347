"""Following a stream: answers to new moments, their log, alarms on drift, and retrained models."""
