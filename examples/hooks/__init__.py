"""Hooks of training: copy one into your folder, or name it here as training.hooks=[examples.hooks.profiling:Profile]."""
