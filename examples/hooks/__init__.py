"""Hooks of training: copy one into your folder, or name it as training.hooks=[examples.hooks.profiling:Profile]."""
