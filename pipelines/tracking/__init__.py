"""What is seen of a training: progress lines, recorded metrics, experiment trackers."""
