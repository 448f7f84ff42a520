"""The fast path: plain requests, answered on the connection that they came on, without the application.

The words, each in one line:

- The *application* is FastAPI with its middlewares and routes, and the authority for every answer and every error.
- A *plain request* has a head that ``request_heads_c.pyx`` can read, and a query that a route has already validated.
  So the first request with a query is never plain.
- A ``RequestHead`` is the head of one plain request; equal requests have the same ``key``.
- ``FastPath`` in ``dispatcher`` decides who may send a plain request, and which handler answers it.
- A ``ResolvedTarget`` holds what follows from a ``key`` alone: route, parameters, options, compiled handler.
- A *handler* answers plain requests of a route that is marked with ``@answered_on_connection``.
- A *compiled handler* of ``handlers_c.pyx`` answers most requests for one target, so that the handler in Python is not
  called.
- ``enqueue`` is a compiled handler that may put a batch into the queue of an ``AppendBatcher``.
- An ``AppendBatcher`` collects batches for a partition during an iteration of the loop, and has them written together.
- A ``QueuedAppend`` is a request whose batch waits there, for its write or its fsync.
- A ``PlainAnswer`` is a whole answer. An ``AnswerWait`` names the event that must come before there is an answer.
- A ``DeferredAnswer`` keeps a plain request until its answer comes.
- ``cache_query`` keeps the parameters that a route has validated, so that the next such request is plain.

The way of one request: ``connection_c.pyx`` reads a plain head and looks up its ``ResolvedTarget`` by ``key``; what it
leaves, and everything where nothing is compiled, ``plain_requests`` does. If there is no target, ``FastPath.resolve``
makes one from the route's declaration and the cached query. The compiled handler of the target answers, or
``FastPath.serve`` calls the handler in Python, which may offer a compiled one for the next requests. The connection
sends the ``PlainAnswer``, or keeps a ``QueuedAppend`` or a ``DeferredAnswer`` until the answer is there. Whatever
declines on this way has changed nothing, and the application gets the request whole.
"""
