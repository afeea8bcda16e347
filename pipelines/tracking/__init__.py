"""What users see of a training: progress lines, recorded metrics, experiment trackers."""
