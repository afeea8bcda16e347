"""Single-device modules, each built from one config. Nothing here knows how it is trained."""
