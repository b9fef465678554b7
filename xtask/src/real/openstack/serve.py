"""Serves the API of one OpenStack service: serve.py MODULE PORT [ARGUMENT...].

The services no longer have a server of their own. MODULE has the WSGI application; the arguments
are the arguments of the service, such as --config-file. Each request of the driver, when it
arrives, is a line of the file that REQUEST_LOG names: the method, and the path with {id} for each
id.
"""

import importlib
import os
import re
import sys

import waitress

AGENT = "machinist/"
ID = re.compile("(?<=/)([0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})(?=/|$)")

module, port = sys.argv[1:3]
sys.argv[1:3] = []
application = importlib.import_module(module).application
log = os.open(os.environ["REQUEST_LOG"], os.O_WRONLY | os.O_APPEND)


def logged(environ, start_response):
    if environ.get("HTTP_USER_AGENT", "").startswith(AGENT):
        path = ID.sub("{id}", environ["PATH_INFO"])
        # One write for each line: the file belongs to all services.
        os.write(log, f"{environ['REQUEST_METHOD']} {path}\n".encode())
    return application(environ, start_response)


waitress.serve(logged, host="127.0.0.1", port=int(port), threads=8)
