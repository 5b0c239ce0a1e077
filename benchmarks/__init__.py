"""The product, its peers and the offline limits, measured side by side in one run on the same weights and texts."""
