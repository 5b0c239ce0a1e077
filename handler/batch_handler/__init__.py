"""The part of the container that runs inside the TorchServe worker: requests in, batches through the model, answers out."""
