"""The servers that the product is compared with, one folder each, with its own locked requirements."""
