"""Two loads that need no model: a handler that does nothing, and bodies of 25 MB. What remains is the path around the handler."""
