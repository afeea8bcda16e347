"""A folder of documents: what is read of them, how they are cleaned and masked, and how they are divided."""
