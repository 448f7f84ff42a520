"""The fast path: plain requests, answered on the connection that they came on, without the application.

The words, each in one line:

- The *application* is FastAPI with its middlewares and routes, and the authority for every answer and every error.
- A *plain request* has a head that ``request_heads_c.pyx`` can read, and a query that a route has already validated.
  So the first request with a given query string is never plain.
- A ``RequestHead`` is the head of one plain request; equal requests have the same ``key``.
- ``FastPath`` in ``dispatcher`` decides who may send a plain request, and which handler answers it.
- A ``ResolvedTarget`` holds what follows from a ``key`` alone: route, parameters, options, compiled handler.
- A *handler* answers plain requests of a route that is marked with ``@answered_on_connection``.
- A *compiled handler* of ``fetch_c.pyx`` or ``produce_c.pyx`` answers most requests for one target, so that the handler
  in Python is not called.
- ``enqueue`` is a compiled handler that may put a batch into the queue of an ``AppendBatcher``.
- An ``AppendBatcher`` collects batches for a partition during an iteration of the loop, and has them written together.
- A ``QueuedAppend`` is a request whose batch waits there, for its write or its fsync.
- A ``PlainAnswer`` is a whole answer. An ``AnswerWait`` names the event that must come before there is an answer.
- A ``DeferredAnswer`` keeps a plain request until its answer comes.
- A *crowd* is all plain fetches that wait for the same bytes, each a ``CrowdMember``. One answer is made for them.
- ``cache_query`` keeps the parameters that a route has validated, so that the next such request is plain.

The way of one request:

1. ``connection_c.pyx`` reads the head. If it is plain, its ``key`` leads to the ``ResolvedTarget``.
2. If there is none yet, ``FastPath.resolve`` makes one from the route's declaration and the cached query.
3. The compiled handler of the target answers. If there is none, or it declines, ``FastPath.serve`` calls the handler in
   Python, which may offer a compiled handler for the next requests.
4. The connection sends the ``PlainAnswer``, or keeps a ``QueuedAppend`` or a ``DeferredAnswer`` until its answer comes.

``plain_requests`` does the same in Python: where nothing is compiled, and for requests that ``connection_c`` leaves to
it. A step that declines has changed nothing. If no step answers, the application gets the request whole.
"""
