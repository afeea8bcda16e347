"""What every part may import: files, random numbers, statistics, text, GPU figures. It imports nothing of ours."""
