"""Character models that write plans: an LSTM, its mixture with counted contexts, and passages of stored documents."""
