"""From a checkout to an image in ECR that SageMaker accepts."""
