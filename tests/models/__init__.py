"""Small models for tests: built in seconds from generated text, saved the way real artefacts are, nothing downloaded."""
