"""From a description of an endpoint to the endpoint: what is asked of AWS, in which order, and how it ends."""
