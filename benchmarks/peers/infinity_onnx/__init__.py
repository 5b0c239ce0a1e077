"""Infinity with its optimum engine: the model as ONNX, run by onnxruntime."""
