"""TorchServe as it is installed, with a handler as its guides show it."""
