"""gunicorn and Flask: what many SageMaker containers of one's own are built from. nginx is left out, which only helps."""
