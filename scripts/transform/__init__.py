"""Batch transform: one job description, run on SageMaker or here with the platform's semantics. See ../batch_transform.py."""
