"""PID 1 of the container: settings → rendered configuration → java → readiness → drain.

Owns the process tree and everything under the work directory in /tmp. What the model does is the handler's;
HTTP on the serving port is the frontend's. Imports nothing heavier than PyYAML: it lives as long as the container.
"""
