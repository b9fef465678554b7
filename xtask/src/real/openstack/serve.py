"""Serves the API of one OpenStack service: serve.py MODULE PORT [ARGUMENT...].

The services have no server of their own any more. MODULE has the WSGI application; the arguments
are those of the service, such as --config-file.
"""

import importlib
import sys

import waitress

module, port = sys.argv[1:3]
sys.argv[1:3] = []
application = importlib.import_module(module).application
waitress.serve(application, host="127.0.0.1", port=int(port), threads=8)
