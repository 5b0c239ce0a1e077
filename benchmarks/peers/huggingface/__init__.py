"""The SageMaker Hugging Face inference toolkit: multi-model-server with the toolkit's handler around a user's inference.py."""
