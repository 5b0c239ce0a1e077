"""The SageMaker PyTorch inference toolkit: TorchServe with the toolkit's handler around a user's inference.py."""
