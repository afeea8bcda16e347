"""What training adds to the data and the model: batches of pairs, and checks before the first step."""
